package telemetry

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/otlptranslator"
	"go.opentelemetry.io/otel/attribute"
	otelprometheus "go.opentelemetry.io/otel/exporters/prometheus"
	"go.opentelemetry.io/otel/metric"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"

	"github.com/fencelock/fencelock/core/port"
)

// Scope names the instrumentation.
const Scope = "github.com/fencelock/fencelock/apps/lockserver"

// countTimeout bounds what a scrape asks of the store.
const countTimeout = time.Second

// incidentKinds are all that the adapters report. Each has a series under every backend, so that a rule about one is
// the same everywhere, and its first incident is a step from zero.
func incidentKinds() []string {
	return []string{
		"cleanup_dropped", "clock_stepped", "feed_restarted", "keepalive_replaced", "listener_restarted", "not_listening",
		"store_unsafe", "tidy_failed", "unreplicated", "watch_restarted", "watermark_failed",
	}
}

// Metrics are the server's instruments.
type Metrics struct {
	label    attribute.KeyValue
	backend  metric.MeasurementOption
	counters map[port.EventKind]metric.Int64Counter
	acquire  map[string]prometheus.Observer
	waiters  metric.Int64Gauge
	incident metric.Int64Counter
	meter    metric.Meter
	provider *sdkmetric.MeterProvider
}

// NewMetrics registers the instruments with registry. All series are there from the start, at zero.
func NewMetrics(registry *prometheus.Registry, backend string) (m *Metrics, err error) {
	exporter, err := otelprometheus.New(
		otelprometheus.WithRegisterer(registry),
		otelprometheus.WithoutScopeInfo(),
		otelprometheus.WithoutTargetInfo(),
		// Names are written as they are to be seen.
		otelprometheus.WithTranslationStrategy(otlptranslator.NoTranslation),
	)
	if err != nil {
		return nil, fmt.Errorf("create metrics: %w", err)
	}
	if err := registry.Register(collectors.NewGoCollector()); err != nil {
		return nil, fmt.Errorf("create metrics: %w", err)
	}
	if err := registry.Register(collectors.NewProcessCollector(collectors.ProcessCollectorOpts{})); err != nil {
		return nil, fmt.Errorf("create metrics: %w", err)
	}
	label := attribute.String("backend", backend)
	m = &Metrics{
		label:    label,
		backend:  metric.WithAttributeSet(attribute.NewSet(label)),
		counters: make(map[port.EventKind]metric.Int64Counter),
		provider: sdkmetric.NewMeterProvider(sdkmetric.WithReader(exporter)),
	}
	if m.acquire, err = acquireSeconds(registry, backend); err != nil {
		return nil, err
	}
	m.meter = m.provider.Meter(Scope)
	return m, m.create(m.meter)
}

// acquireSeconds is made with the Prometheus library itself: OpenTelemetry's histogram shows nothing before its
// first value, and an outcome that never happened must be seen as 0, not be missing.
func acquireSeconds(registry *prometheus.Registry, backend string) (map[string]prometheus.Observer, error) {
	histogram := prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name:    "lock_acquire_seconds",
		Help:    "Time of an acquire on this server, its wait included.",
		Buckets: []float64{.0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 300},
	}, []string{"backend", "outcome"})
	if err := registry.Register(histogram); err != nil {
		return nil, fmt.Errorf("create metrics: %w", err)
	}
	outcomes := make(map[string]prometheus.Observer)
	for _, outcome := range []string{port.OutcomeGranted, port.OutcomeContended, port.OutcomeError} {
		outcomes[outcome] = histogram.WithLabelValues(backend, outcome)
	}
	return outcomes, nil
}

// create makes the other instruments but lock_held_current; names and meanings are a contract with dashboards.
func (m *Metrics) create(meter metric.Meter) (err error) {
	if m.waiters, err = meter.Int64Gauge("lock_waiters_current", metric.WithDescription("Waiters on this server.")); err != nil {
		return fmt.Errorf("create metrics: %w", err)
	}
	if m.incident, err = meter.Int64Counter("lock_store_incident_total",
		metric.WithDescription("What the adapter of the store noticed, by kind.")); err != nil {
		return fmt.Errorf("create metrics: %w", err)
	}
	for _, c := range []struct {
		kind       port.EventKind
		name, what string
	}{
		{port.EventLeaseExpired, "lock_lease_expired_total", "Grants that ended because their lease ran out."},
		{port.EventSessionLost, "lock_session_lost_total", "Sessions that died without being closed."},
		{port.EventRevoked, "lock_revoked_total", "Grants ended by an operator."},
		{port.EventHandoff, "lock_handoff_total", "Grants passed from a release straight to a waiter."},
		{port.EventFallback, "lock_wait_fallback_total", "Waits that ended by the fallback poll instead of a wake-up."},
	} {
		if m.counters[c.kind], err = meter.Int64Counter(c.name, metric.WithDescription(c.what)); err != nil {
			return fmt.Errorf("create metrics: %w", err)
		}
	}
	m.zero()
	return nil
}

// zero makes every series visible before its first event.
func (m *Metrics) zero() {
	ctx := context.Background()
	for _, counter := range m.counters {
		counter.Add(ctx, 0, m.backend)
	}
	m.waiters.Record(ctx, 0, m.backend)
	for _, kind := range incidentKinds() {
		m.countIncidents(kind, 0)
	}
}

// CountIncident counts something that the adapter of the store noticed.
func (m *Metrics) CountIncident(kind string) { m.countIncidents(kind, 1) }

func (m *Metrics) countIncidents(kind string, n int64) {
	m.incident.Add(context.Background(), n, metric.WithAttributes(m.label, attribute.String("kind", kind)))
}

// Observe implements port.Observer.
func (m *Metrics) Observe(ctx context.Context, event port.Event) {
	switch event.Kind {
	case port.EventAcquired:
		if outcome, ok := m.acquire[event.Outcome]; ok {
			outcome.Observe(event.Duration.Seconds())
		}
	case port.EventWaiting:
		m.waiters.Record(ctx, int64(event.Count), m.backend)
	default:
		if counter, ok := m.counters[event.Kind]; ok {
			counter.Add(ctx, 1, m.backend)
		}
	}
}

// CountHeld makes lock_held_current: each scrape asks count for the number of live grants, and shows the last
// known one where the store does not answer.
func (m *Metrics) CountHeld(count func(context.Context) (int, error)) error {
	var last atomic.Int64
	_, err := m.meter.Int64ObservableGauge("lock_held_current",
		metric.WithDescription("Live grants in the store."),
		metric.WithInt64Callback(func(ctx context.Context, o metric.Int64Observer) error {
			ctx, cancel := context.WithTimeout(ctx, countTimeout)
			defer cancel()
			if n, err := count(ctx); err == nil {
				last.Store(int64(n))
			}
			o.Observe(last.Load(), m.backend)
			return nil
		}))
	if err != nil {
		return fmt.Errorf("create metrics: %w", err)
	}
	return nil
}

// Close ends the provider.
func (m *Metrics) Close(ctx context.Context) error {
	if err := m.provider.Shutdown(ctx); err != nil {
		return fmt.Errorf("stop metrics: %w", err)
	}
	return nil
}
