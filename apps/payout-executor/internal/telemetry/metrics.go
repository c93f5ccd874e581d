package telemetry

import (
	"fmt"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"github.com/fencelock/fencelock/apps/payout-executor/internal/payout"
)

// Metrics are the executor's instruments.
type Metrics struct {
	execute map[payout.EventKind]prometheus.Observer
}

// NewMetrics registers the instruments, with those of the Go runtime and of the process. age is how old the oldest payout is that
// waits. All series are there from the start, at 0.
func NewMetrics(registry *prometheus.Registry, age func() time.Duration) (*Metrics, error) {
	execute := prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name:    "payout_execute_seconds",
		Help:    "Time of an execution that brought its payout into the state of the outcome, from the request for the lock on.",
		Buckets: []float64{.005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 120},
	}, []string{"outcome"})
	backlog := prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "payout_backlog_age_seconds",
		Help: "Age of the oldest payout that is neither over nor ambiguous, as of the last poll.",
	}, func() float64 { return age().Seconds() })
	for _, c := range []prometheus.Collector{
		execute, backlog, collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
	} {
		if err := registry.Register(c); err != nil {
			return nil, fmt.Errorf("create metrics: %w", err)
		}
	}
	m := &Metrics{execute: map[payout.EventKind]prometheus.Observer{}}
	for kind, outcome := range map[payout.EventKind]payout.Outcome{
		payout.PayoutPosted: payout.Posted, payout.PayoutFailed: payout.Failed,
		payout.PayoutAbandoned: payout.Abandoned, payout.RailAmbiguity: payout.Ambiguous,
	} {
		m.execute[kind] = execute.WithLabelValues(string(outcome))
	}
	return m, nil
}

// observe counts an event, if a metric counts it.
func (m *Metrics) observe(e payout.Event) {
	if histogram, ok := m.execute[e.Kind]; ok {
		histogram.Observe(e.Took.Seconds())
	}
}
