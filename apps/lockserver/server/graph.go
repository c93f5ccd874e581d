package server

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel/trace"
	"go.uber.org/fx"
	"go.uber.org/fx/fxevent"

	"github.com/fencelock/fencelock/adapters/rpc"
	"github.com/fencelock/fencelock/apps/lockserver/config"
	"github.com/fencelock/fencelock/apps/lockserver/telemetry"
	"github.com/fencelock/fencelock/apps/program/admin"
	"github.com/fencelock/fencelock/apps/program/endpoint"
	"github.com/fencelock/fencelock/apps/program/tracing"
	"github.com/fencelock/fencelock/core/clock"
	"github.com/fencelock/fencelock/core/port"
	"github.com/fencelock/fencelock/core/service"
)

// stopGrace is what stopping may take after the drain.
const stopGrace = 10 * time.Second

// reapEvery is the beat at which the store is asked to tidy what is over already.
const reapEvery = 15 * time.Second

// Build says what is running.
type Build struct {
	Version   string
	StartedAt time.Time
}

// Options is the graph of one server. ctx bounds the opening of the store.
func Options(ctx context.Context, cfg config.Config, logger *slog.Logger, build Build) fx.Option {
	return fx.Options(
		fx.WithLogger(func() fxevent.Logger { return fxevent.NopLogger }),
		fx.Supply(cfg, logger, build),
		fx.Provide(
			func() context.Context { return ctx },
			prometheus.NewRegistry,
			newSigner,
			openStore,
			newTracing,
			newMetrics,
			newService,
			newRoutine,
			newHandler,
			newDoors,
		),
		fx.Invoke(func(rpc.Signer) {}, func(*Doors) {}), // what is wrong with a key shows before a store is asked
		// The drain, then a moment for what follows it.
		fx.StopTimeout(cfg.DrainTimeout+stopGrace),
	)
}

func newTracing(ctx context.Context, lc fx.Lifecycle) (trace.Tracer, error) {
	tracer, stop, err := tracing.NewTracer(ctx, telemetry.Scope)
	if err != nil {
		return nil, err
	}
	lc.Append(fx.StopHook(stop))
	return tracer, nil
}

func newMetrics(lc fx.Lifecycle, registry *prometheus.Registry, cfg config.Config) (*telemetry.Metrics, error) {
	metrics, err := telemetry.NewMetrics(registry, cfg.Backend)
	if err != nil {
		return nil, err
	}
	lc.Append(fx.StopHook(metrics.Close))
	return metrics, nil
}

func newService(
	lc fx.Lifecycle, cfg config.Config, backend port.Backend, metrics *telemetry.Metrics, logger *slog.Logger,
) (*service.Service, error) {
	limit := cfg.HandoffLimit
	if limit == 0 {
		limit = -1 // the service's word for none
	}
	svc := service.New(backend, service.Config{
		HandoffLimit:     limit,
		MaxWaitersPerKey: cfg.WaitersPerKey,
		MaxWaiters:       cfg.WaitersTotal,
		MaxWait:          cfg.MaxWait,
		SessionTTL:       cfg.SessionTTL,
	}, clock.Boot{}, telemetry.NewObserver(metrics, logger))
	err := metrics.CountHeld(func(ctx context.Context) (int, error) {
		totals, err := svc.Counts(ctx)
		return totals.Grants, err
	})
	lc.Append(fx.StartStopHook(svc.Start, svc.Close))
	return svc, err
}

// newRoutine starts what happens on a beat: the probe and the reaper.
func newRoutine(ctx context.Context, lc fx.Lifecycle, svc *service.Service, backend port.Backend, logger *slog.Logger) *probe {
	p := newProbe(svc, logger)
	beats := newRoutines(ctx)
	lc.Append(fx.StartStopHook(func(ctx context.Context) {
		p.ask(ctx) // ready means ready: the first answer is there before the doors open
		beats.every(probeEvery, p.ask)
		beats.every(reapEvery, func(ctx context.Context) {
			ctx, cancel := context.WithTimeout(ctx, reapEvery)
			defer cancel()
			if n, err := backend.Locks.ReapExpired(ctx); err != nil {
				logger.LogAttrs(ctx, slog.LevelDebug, "reap_failed", slog.Any("error", err))
			} else if n > 0 {
				logger.LogAttrs(ctx, slog.LevelDebug, "reaped", slog.Int("count", n))
			}
		})
	}, beats.stop))
	return p
}

func newHandler(
	cfg config.Config, build Build, svc *service.Service, p *probe, tracer trace.Tracer, signer rpc.Signer, logger *slog.Logger,
) *rpc.Handler {
	return rpc.New(rpc.Config{
		Service:      telemetry.Traced(svc, tracer),
		Clock:        clock.Boot{},
		Ready:        p.ready,
		DefaultLease: cfg.DefaultLease,
		Signer:       signer,
		Info: rpc.Info{
			Version:      build.Version,
			SessionTTL:   cfg.SessionTTL,
			SafetyMargin: cfg.SafetyMargin,
			StartedAt:    build.StartedAt,
		},
		Panicked: func(ctx context.Context, procedure string, value any, stack []byte) {
			logger.LogAttrs(ctx, slog.LevelError, "panic", slog.String("procedure", procedure),
				slog.String("value", fmt.Sprint(value)), slog.String("stack", string(stack)))
		},
	})
}

// Doors are the addresses at which the server answers.
type Doors struct{ public, admin *endpoint.Endpoint }

// Public is the address of RPC, health and reflection.
func (d *Doors) Public() string { return d.public.Address() }

// Admin is the address of metrics and probes.
func (d *Doors) Admin() string { return d.admin.Address() }

func newDoors(lc fx.Lifecycle, stop fx.Shutdowner, cfg config.Config, handler *rpc.Handler, svc *service.Service,
	registry *prometheus.Registry, p *probe, logger *slog.Logger,
) *Doors {
	failed := func(err error) {
		logger.Error("serving_failed", slog.Any("error", err))
		_ = stop.Shutdown(fx.ExitCode(1))
	}
	doors := &Doors{
		public: endpoint.New(rpc.NewServer(handler, logger), cfg.ServerAddr, failed),
		admin:  endpoint.New(admin.NewServer(registry, p.ready, logger), cfg.AdminAddr, failed),
	}
	// The admin door opens first and closes last, so that a probe sees the draining.
	lc.Append(fx.StartStopHook(doors.admin.Start, doors.admin.Stop))
	lc.Append(fx.StartStopHook(doors.public.Start, func(ctx context.Context) {
		drain(ctx, cfg.DrainTimeout, handler, svc, doors.public, logger)
	}))
	return doors
}

// drain tells the clients to move, lets what is in flight end, and closes the public door. Sessions stay alive.
func drain(
	ctx context.Context, limit time.Duration, handler *rpc.Handler, svc *service.Service, public *endpoint.Endpoint, logger *slog.Logger,
) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	logger.InfoContext(ctx, "draining")
	handler.Drain()
	if err := svc.Drain(ctx); err != nil {
		logger.WarnContext(ctx, "drain_cut_short")
	}
	public.Stop(ctx)
}
