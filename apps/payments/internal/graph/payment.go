package graph

import (
	"context"
	"log/slog"
	"net/http"

	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel/trace"
	"go.uber.org/fx"

	"github.com/fencelock/fencelock/apps/payments/internal/account"
	"github.com/fencelock/fencelock/apps/payments/internal/api"
	"github.com/fencelock/fencelock/apps/payments/internal/config"
	"github.com/fencelock/fencelock/apps/payments/internal/database"
	"github.com/fencelock/fencelock/apps/payments/internal/telemetry"
	"github.com/fencelock/fencelock/apps/program"
	"github.com/fencelock/fencelock/core/fence"
)

// Payment is the program that keeps accounts, payouts and the ledger.
func Payment() program.Program[config.Payment] {
	return program.Program[config.Payment]{
		Name: "payment-resource", Load: config.LoadPayment, Usage: config.UsageOfPayment, Graph: PaymentGraph,
	}
}

// PaymentGraph is one payment resource. ctx bounds the opening of the database.
func PaymentGraph(ctx context.Context, cfg config.Payment, logger *slog.Logger) fx.Option {
	warn(logger, cfg.OpenToNetwork(), cfg.Fencing, "a stale writer corrupts the ledger")
	return fx.Options(
		base(ctx, logger, cfg.PublicKeyFile),
		fx.Supply(cfg, addresses{cfg.Addr, cfg.AdminAddr}),
		fx.Provide(
			openPayments,
			func(db *database.Database) *account.Store { return account.New(db, cfg.Fencing) },
			func(r *prometheus.Registry) (*telemetry.Payment, error) { return telemetry.NewPayment(r, logger) },
			newPaymentHandler,
			ready("rpc", cfg.Place()),
		),
		fx.StopTimeout(stopTimeout),
	)
}

func openPayments(ctx context.Context, lc fx.Lifecycle, cfg config.Payment, h *health, _ before) (*database.Database, error) {
	return openDatabase(ctx, lc, h, cfg.URL, "payment-resource", account.Migrate)
}

func newPaymentHandler(
	store *account.Store, reader fence.Reader, watch *telemetry.Payment, tracer trace.Tracer, logger *slog.Logger,
) http.Handler {
	return api.NewPayment(store, reader, watch, tracer, logger)
}
