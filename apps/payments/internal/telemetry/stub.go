package telemetry

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/fencelock/fencelock/apps/payments/internal/bank"
)

// Stub is the telemetry of the rail for tests.
type Stub struct{ transfers *prometheus.CounterVec }

// NewStub registers the metrics.
func NewStub(registry prometheus.Registerer) (*Stub, error) {
	s := &Stub{prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "rail_stub_transfer_total", Help: "Transfers that arrived, by what became of them.",
	}, []string{"outcome"})}
	for _, outcome := range []string{bank.OutcomeExecuted, bank.OutcomeDeclined, bank.OutcomeReplyLost, bank.OutcomeRequestLost} {
		s.transfers.WithLabelValues(outcome)
	}
	return s, register(registry, s.transfers)
}

// Transferred counts a transfer by one of the outcomes of [bank.Handler].
func (s *Stub) Transferred(outcome string) { s.transfers.WithLabelValues(outcome).Inc() }
