package graph

import (
	"context"
	"log/slog"
	"net/http"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/fx"

	"github.com/fencelock/fencelock/apps/payments/internal/bank"
	"github.com/fencelock/fencelock/apps/payments/internal/config"
	"github.com/fencelock/fencelock/apps/payments/internal/telemetry"
	"github.com/fencelock/fencelock/apps/program"
)

// Stub is the program that plays a rail.
func Stub() program.Program[config.Stub] {
	return program.Program[config.Stub]{
		Name: "rail-stub", Load: config.LoadStub, Usage: config.UsageOfStub, Graph: StubGraph,
	}
}

// StubGraph is one rail for tests.
func StubGraph(ctx context.Context, cfg config.Stub, logger *slog.Logger) fx.Option {
	warn(logger, cfg.OpenToNetwork(), true, "")
	return fx.Options(
		base(ctx, logger, ""),
		fx.Supply(cfg, addresses{cfg.Addr, cfg.AdminAddr}),
		fx.Provide(
			openTransfers,
			func(r *prometheus.Registry) (*telemetry.Stub, error) { return telemetry.NewStub(r) },
			newBank,
			ready("http", "transfers in "+cfg.LogFile),
		),
		fx.StopTimeout(stopTimeout),
	)
}

func openTransfers(lc fx.Lifecycle, cfg config.Stub) (*bank.Log, error) {
	log, err := bank.OpenLog(cfg.LogFile)
	if err != nil {
		return nil, err
	}
	lc.Append(fx.StopHook(log.Close))
	return log, nil
}

func newBank(ctx context.Context, h *health, log *bank.Log, cfg config.Stub, watch *telemetry.Stub) http.Handler {
	stopping, stop := context.WithCancel(ctx)
	h.begin = stop // a long latency is cut short
	return bank.New(stopping, log, cfg.Faults(), watch.Transferred)
}
