package graph

import (
	"context"
	"log/slog"
	"net/http"

	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel/trace"
	"go.uber.org/fx"

	"github.com/fencelock/fencelock/apps/payments/internal/api"
	"github.com/fencelock/fencelock/apps/payments/internal/config"
	"github.com/fencelock/fencelock/apps/payments/internal/database"
	"github.com/fencelock/fencelock/apps/payments/internal/rail"
	"github.com/fencelock/fencelock/apps/payments/internal/telemetry"
	"github.com/fencelock/fencelock/apps/program"
	"github.com/fencelock/fencelock/core/fence"
)

// Proxy is the program before the rail.
func Proxy() program.Program[config.Proxy] {
	return program.Program[config.Proxy]{
		Name: "rail-proxy", Load: config.LoadProxy, Usage: config.UsageOfProxy, Graph: ProxyGraph,
	}
}

// ProxyGraph is one proxy. ctx bounds the opening of the database.
func ProxyGraph(ctx context.Context, cfg config.Proxy, logger *slog.Logger) fx.Option {
	warn(logger, cfg.OpenToNetwork(), cfg.Fencing, "a stale or second submission moves money again")
	return fx.Options(
		base(ctx, logger, cfg.PublicKeyFile),
		fx.Supply(cfg, addresses{cfg.Addr, cfg.AdminAddr}),
		fx.Provide(
			openSubmissions,
			func(r *prometheus.Registry) (*telemetry.Rail, error) { return telemetry.NewRail(r, logger) },
			newProxy,
			newRailHandler,
			ready("rpc", cfg.Place()),
		),
		// What is being sent, and then the writing of what has become of it.
		fx.StopTimeout(cfg.Timeout+stopTimeout),
	)
}

func openSubmissions(ctx context.Context, lc fx.Lifecycle, cfg config.Proxy, h *health, _ before) (*database.Database, error) {
	return openDatabase(ctx, lc, h, cfg.URL, "rail-proxy", rail.Migrate)
}

func newProxy(h *health, cfg config.Proxy, db *database.Database, watch *telemetry.Rail) (*rail.Proxy, error) {
	client, err := rail.NewClient(cfg.Rail)
	if err != nil {
		return nil, err
	}
	p := rail.NewProxy(rail.NewStore(db, cfg.Fencing), client, cfg.Timeout, watch.Observe)
	h.drain = p.Close
	return p, nil
}

func newRailHandler(p *rail.Proxy, reader fence.Reader, tracer trace.Tracer, logger *slog.Logger) http.Handler {
	return api.NewRail(p, reader, tracer, logger)
}
