package telemetry

import (
	"context"
	"errors"
	"log/slog"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/fencelock/fencelock/apps/payments/internal/account"
	"github.com/fencelock/fencelock/core/fence"
	"github.com/fencelock/fencelock/core/lock"
)

// The resources that refuse stale tokens, as the label of lock_fenced_out_total names them.
const (
	// ResourceAccount refuses claims and steps.
	ResourceAccount = "account"
	// ResourceLedger refuses postings.
	ResourceLedger = "ledger"
	// ResourceRail refuses submissions and lookups.
	ResourceRail = "rail"
)

// Payment is the telemetry of the payment resource.
type Payment struct {
	fenced  *prometheus.CounterVec
	refused prometheus.Counter
	logger  *slog.Logger
}

// NewPayment registers the metrics.
func NewPayment(registry prometheus.Registerer, logger *slog.Logger) (*Payment, error) {
	p := &Payment{
		fenced: fencedOut(ResourceAccount, ResourceLedger),
		refused: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "payout_transition_refused_total", Help: "Steps of payouts that are in no list, and were refused.",
		}),
		logger: logger,
	}
	return p, register(registry, p.fenced, p.refused)
}

// Refused counts and logs a write that was refused, if its error is one that means something: a stale token, or a transition
// that is not listed. resource is what was written: [ResourceAccount] or [ResourceLedger].
func (p *Payment) Refused(ctx context.Context, resource string, ref account.Ref, token lock.Token, err error) {
	who := []slog.Attr{slog.String("payout", ref.Payout), slog.String("account", ref.Account), slog.Int64("token", int64(token))}
	if out, ok := errors.AsType[*fence.FencedOutError](err); ok {
		p.fenced.WithLabelValues(resource).Inc()
		logFencedOut(ctx, p.logger, resource, out, who)
	}
	if unlisted, ok := errors.AsType[*account.UnlistedError](err); ok {
		p.refused.Inc()
		p.logger.LogAttrs(ctx, slog.LevelWarn, "payout_transition_refused",
			append(who, slog.String("from", string(unlisted.From)), slog.String("to", string(unlisted.To)))...)
	}
}

// fencedOut is the counter of stale tokens, with the resources of one program.
func fencedOut(resources ...string) *prometheus.CounterVec {
	vec := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "lock_fenced_out_total", Help: "Writes refused because their token was stale.",
	}, []string{"resource"})
	for _, resource := range resources {
		vec.WithLabelValues(resource)
	}
	return vec
}

// logFencedOut logs the event fenced_out: highest is the resource's mark.
func logFencedOut(ctx context.Context, logger *slog.Logger, resource string, out *fence.FencedOutError, who []slog.Attr) {
	logger.LogAttrs(ctx, slog.LevelWarn, "fenced_out",
		append([]slog.Attr{slog.String("resource", resource)}, append(who, slog.Int64("highest", int64(out.Highest)))...)...)
}
