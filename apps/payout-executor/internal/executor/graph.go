package executor

import (
	"context"
	"log/slog"
	"net/http"
	"runtime/debug"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel/trace"
	"go.uber.org/fx"

	"github.com/fencelock/fencelock/adapters/client"
	"github.com/fencelock/fencelock/apps/payout-executor/config"
	"github.com/fencelock/fencelock/apps/payout-executor/internal/locks"
	"github.com/fencelock/fencelock/apps/payout-executor/internal/payout"
	"github.com/fencelock/fencelock/apps/payout-executor/internal/remote"
	"github.com/fencelock/fencelock/apps/payout-executor/internal/telemetry"
	"github.com/fencelock/fencelock/apps/payout-executor/internal/worker"
	"github.com/fencelock/fencelock/apps/program"
	"github.com/fencelock/fencelock/apps/program/admin"
	"github.com/fencelock/fencelock/apps/program/endpoint"
	"github.com/fencelock/fencelock/apps/program/tracing"
)

const (
	// closeTimeout bounds the closing of the session.
	closeTimeout = 5 * time.Second
	// stopGrace is what stopping may take after the work in hand.
	stopGrace = 10 * time.Second
)

// Graph is one executor.
func Graph(ctx context.Context, cfg config.Config, logger *slog.Logger) fx.Option {
	return fx.Options(
		fx.Supply(cfg, logger),
		fx.Provide(
			func() context.Context { return ctx },
			prometheus.NewRegistry,
			newTracer,
			newHTTPClient,
			newPayments,
			newRail,
			newLocks,
			newProbe,
			newPool,
			newDoor,
			newReady,
		),
		// What is here last starts last and stops first: the work.
		fx.Invoke(func(*endpoint.Endpoint) {}, run),
		fx.StopTimeout(cfg.StopTimeout+stopGrace),
	)
}

func newTracer(ctx context.Context, lc fx.Lifecycle) (trace.Tracer, error) {
	tracer, stop, err := tracing.NewTracer(ctx, telemetry.Scope)
	if err != nil {
		return nil, err
	}
	lc.Append(fx.StopHook(stop))
	return tracer, nil
}

// newHTTPClient has room for a call of each place, the poll and the probe.
func newHTTPClient(lc fx.Lifecycle, cfg config.Config) *http.Client {
	c := remote.NewHTTPClient(cfg.Concurrency + 2)
	lc.Append(fx.StopHook(c.CloseIdleConnections))
	return c
}

func newPayments(c *http.Client, cfg config.Config) *remote.Payments {
	return remote.NewPayments(c, cfg.Payment)
}

func newRail(c *http.Client, cfg config.Config) *remote.Rail { return remote.NewRail(c, cfg.Rail) }

// newLocks closes the client only: whether the session is closed before that depends on how the work ends.
func newLocks(lc fx.Lifecycle, cfg config.Config) (*locks.Locks, error) {
	c, err := client.New(cfg.LockServers)
	if err != nil {
		return nil, err
	}
	lc.Append(fx.StopHook(c.Close))
	return locks.New(c, cfg.Who(), cfg.SessionTTL), nil
}

func newProbe(held *locks.Locks, payments *remote.Payments, rail *remote.Rail, logger *slog.Logger) *probe {
	return &probe{logger: logger, targets: []target{
		{"the lock service", held.Ping}, {"the payment resource", payments.Ping}, {"the rail's proxy", rail.Ping},
	}}
}

func newPool(
	cfg config.Config, registry *prometheus.Registry, tracer trace.Tracer, logger *slog.Logger,
	held *locks.Locks, payments *remote.Payments, rail *remote.Rail,
) (*worker.Pool, error) {
	// The metrics show the pool's backlog, and the pool executes what the metrics count.
	var pool *worker.Pool
	metrics, err := telemetry.NewMetrics(registry, func() time.Duration { return pool.Age() })
	if err != nil {
		return nil, err
	}
	e := payout.New(held, payments, rail, telemetry.NewObserver(metrics, logger), payout.Limits{})
	pool = worker.New(worker.Config{
		Backlog: payments, Execute: telemetry.Traced(e.Execute, tracer), Concurrency: cfg.Concurrency, Interval: cfg.PollInterval,
		Failed: func(err error) { logger.Debug("poll_failed", slog.Any("error", err)) },
		Idle:   debug.FreeOSMemory, // most of its life an executor waits, beside others on one machine
	})
	return pool, nil
}

// newDoor serves metrics and probes.
func newDoor(lc fx.Lifecycle, stop fx.Shutdowner, cfg config.Config, registry *prometheus.Registry, p *probe, logger *slog.Logger,
) *endpoint.Endpoint {
	door := endpoint.New(admin.NewServer(registry, p.ready, logger), cfg.AdminAddr, func(err error) {
		logger.Error("serving_failed", slog.Any("error", err))
		_ = stop.Shutdown(fx.ExitCode(program.ExitFailed))
	})
	lc.Append(fx.StartStopHook(door.Start, door.Stop))
	lc.Append(fx.StartStopHook(p.start, p.stop))
	return door
}

func newReady(door *endpoint.Endpoint) program.Ready {
	return func() string { return "admin http://" + door.Address() }
}

// run is the work. The session is closed once all of it has ended. Where some has not, nothing is released: the locks die with the
// session, so that nobody else begins while something of this process may still be under way.
func run(lc fx.Lifecycle, cfg config.Config, pool *worker.Pool, held *locks.Locks, p *probe, logger *slog.Logger) {
	lc.Append(fx.StartStopHook(pool.Start, func(ctx context.Context) error {
		logger.InfoContext(ctx, "stopping")
		p.drain()
		held.Drain()
		work, cancel := context.WithTimeout(ctx, cfg.StopTimeout)
		defer cancel()
		if err := pool.Stop(work); err != nil {
			logger.WarnContext(ctx, "stop_cut_short")
			return err
		}
		closing, cancel := context.WithTimeout(ctx, closeTimeout)
		defer cancel()
		if err := held.Close(closing); err != nil {
			logger.WarnContext(ctx, "session_not_closed", slog.Any("error", err))
		}
		return nil
	}))
}
