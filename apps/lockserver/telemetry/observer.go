package telemetry

import (
	"context"
	"log/slog"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"

	"github.com/fencelock/fencelock/core/port"
)

// Observer feeds metrics, logs and the current span from the service's reports.
type Observer struct {
	metrics *Metrics
	logger  *slog.Logger
}

// NewObserver returns an Observer.
func NewObserver(metrics *Metrics, logger *slog.Logger) *Observer {
	return &Observer{metrics: metrics, logger: logger}
}

// Observe implements port.Observer.
func (o *Observer) Observe(ctx context.Context, event port.Event) {
	o.metrics.Observe(ctx, event)
	if event.Token > 0 {
		trace.SpanFromContext(ctx).SetAttributes(attribute.Int64("lock.token", int64(event.Token)))
	}
	if level, ok := levelOf(event.Kind); ok && o.logger.Enabled(ctx, level) {
		o.logger.LogAttrs(ctx, level, string(event.Kind), attributes(event)...)
	}
}

// levelOf says how an event is logged; ok is false for those that only metrics want.
func levelOf(kind port.EventKind) (level slog.Level, ok bool) {
	switch kind {
	case port.EventSessionOpened, port.EventSessionClosed, port.EventGranted, port.EventReleased:
		return slog.LevelInfo, true
	case port.EventSessionLost, port.EventLeaseExpired, port.EventRevoked, port.EventFloorRaised:
		return slog.LevelWarn, true
	case port.EventHandoff, port.EventAcquired, port.EventWaiting, port.EventFallback:
	}
	return 0, false
}

// attributes are what is known of an event. Texts of callers are values of attributes, which the handler
// quotes: they cannot start a line. A session shows its hash.
func attributes(event port.Event) []slog.Attr {
	attrs := make([]slog.Attr, 0, 5)
	if !event.Key.IsZero() {
		attrs = append(attrs, slog.String("namespace", event.Key.Namespace()), slog.String("key", event.Key.Name()))
	}
	if !event.Session.IsZero() {
		attrs = append(attrs, slog.String("session", event.Session.Hash()))
	}
	if event.Owner != "" {
		attrs = append(attrs, slog.String("owner", string(event.Owner)))
	}
	if event.Token > 0 {
		attrs = append(attrs, slog.Int64("token", int64(event.Token)))
	}
	return attrs
}
