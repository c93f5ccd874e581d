package telemetry

import (
	"context"
	"log/slog"

	"github.com/fencelock/fencelock/apps/payout-executor/internal/payout"
)

// Observer counts and logs what executions do. It implements [payout.Observer].
type Observer struct {
	metrics *Metrics
	logger  *slog.Logger
}

// NewObserver returns an Observer.
func NewObserver(metrics *Metrics, logger *slog.Logger) *Observer {
	return &Observer{metrics: metrics, logger: logger}
}

// Observe implements [payout.Observer].
func (o *Observer) Observe(ctx context.Context, e payout.Event) {
	o.metrics.observe(e)
	fields := []slog.Attr{slog.String("payout", e.Payout.ID), slog.String("account", e.Payout.Account)}
	if e.Token != 0 {
		fields = append(fields, slog.Int64("token", int64(e.Token)))
	}
	switch e.Kind {
	case payout.PayoutClaimed:
		fields = append(fields, slog.String("state", string(e.Payout.State)))
	case payout.RailSubmission, payout.PayoutPosted, payout.PayoutReserved:
		fields = append(fields, slog.Int64("amount", e.Payout.Amount))
	case payout.RailAmbiguity, payout.PayoutFailed, payout.PayoutAbandoned:
		fields = append(fields, slog.String("reason", e.Payout.Reason))
	case payout.FencedOut:
		fields = append(fields, slog.String("resource", string(e.Resource)), slog.Any("error", e.Err))
	case payout.PayoutLeft:
		fields = append(fields, slog.Any("error", e.Err))
	}
	o.logger.LogAttrs(ctx, level(e.Kind), string(e.Kind), fields...)
}

// level says how much an event is to worry about.
func level(kind payout.EventKind) slog.Level {
	switch kind {
	case payout.RailAmbiguity, payout.FencedOut, payout.PayoutLeft:
		return slog.LevelWarn
	case payout.PayoutClaimed, payout.RailSubmission, payout.PayoutPosted, payout.PayoutFailed, payout.PayoutAbandoned,
		payout.PayoutReserved:
	}
	return slog.LevelInfo
}
