package telemetry

import (
	"context"
	"errors"
	"log/slog"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/fencelock/fencelock/apps/payments/internal/rail"
	"github.com/fencelock/fencelock/core/fence"
)

// The outcomes of submissions, as the label of rail_submission_total names them.
const (
	outcomeAcked    = "acked"
	outcomeRejected = "rejected"
	outcomeTimeout  = "timeout"
	outcomeFenced   = "fenced"
)

// Rail is the telemetry of the proxy before the rail.
type Rail struct {
	fenced      *prometheus.CounterVec
	submissions *prometheus.CounterVec
	duplicates  prometheus.Counter
	logger      *slog.Logger
}

// NewRail registers the metrics.
func NewRail(registry prometheus.Registerer, logger *slog.Logger) (*Rail, error) {
	r := &Rail{
		fenced: fencedOut(ResourceRail),
		submissions: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "rail_submission_total", Help: "Submissions by what became of them at first; timeout is whatever settles nothing.",
		}, []string{"outcome"}),
		duplicates: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "rail_duplicate_attempted_total", Help: "Second submissions of a payout, refused.",
		}),
		logger: logger,
	}
	for _, outcome := range []string{outcomeAcked, outcomeRejected, outcomeTimeout, outcomeFenced} {
		r.submissions.WithLabelValues(outcome)
	}
	return r, register(registry, r.fenced, r.submissions, r.duplicates)
}

// Observe implements [rail.Observer].
func (r *Rail) Observe(ctx context.Context, e rail.Event) {
	s := e.Submission
	who := []slog.Attr{slog.String("payout", s.Payout), slog.String("account", s.Account), slog.Int64("token", int64(s.Token))}
	outcome := []slog.Attr{slog.String("outcome", string(s.Outcome)), slog.String("rail_reference", s.RailReference)}
	level := slog.LevelInfo
	switch e.Kind {
	case rail.EventFencedOut:
		r.countFencedOut(ctx, e, who)
		return
	case rail.EventSubmitted:
		who = append(who, slog.Int64("amount", s.Amount))
	case rail.EventAnswered:
		r.submissions.WithLabelValues(answered(s.Outcome)).Inc()
		who = append(who, outcome...)
	case rail.EventAmbiguous:
		r.submissions.WithLabelValues(outcomeTimeout).Inc()
		level = slog.LevelWarn
	case rail.EventStillAmbiguous:
	case rail.EventResolved:
		who = append(append(who, outcome...), slog.Int("transfers", s.Transfers))
	case rail.EventUnrecorded:
		level = slog.LevelError
		who = append(who, outcome...)
	case rail.EventDuplicate:
		r.duplicates.Inc()
		level = slog.LevelWarn
	}
	if e.Cause != nil {
		who = append(who, slog.Any("error", e.Cause))
	}
	r.logger.LogAttrs(ctx, level, string(e.Kind), who...)
}

func (r *Rail) countFencedOut(ctx context.Context, e rail.Event, who []slog.Attr) {
	out, ok := errors.AsType[*fence.FencedOutError](e.Cause)
	if !ok {
		return
	}
	r.fenced.WithLabelValues(ResourceRail).Inc()
	if !e.Lookup {
		r.submissions.WithLabelValues(outcomeFenced).Inc()
	}
	logFencedOut(ctx, r.logger, ResourceRail, out, who)
}

func answered(o rail.Outcome) string {
	if o == rail.Acked {
		return outcomeAcked
	}
	return outcomeRejected
}
