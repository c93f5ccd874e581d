package api

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"runtime/debug"

	"connectrpc.com/connect"
	"go.opentelemetry.io/otel/trace"

	"github.com/fencelock/fencelock/adapters/rpc"
	"github.com/fencelock/fencelock/adapters/rpc/guard"
	"github.com/fencelock/fencelock/apps/payments/internal/account"
	"github.com/fencelock/fencelock/apps/payments/internal/rail"
	"github.com/fencelock/fencelock/apps/payments/internal/telemetry"
	"github.com/fencelock/fencelock/contracts/api/fencelock/payments/v1/paymentsv1connect"
	"github.com/fencelock/fencelock/core/fence"
)

const (
	// maxMessage bounds one request, in bytes; the largest that makes sense has a few hundred.
	maxMessage = 16 << 10
	// compressFrom is the size in bytes from which answers are compressed, if the caller takes that: long listings.
	compressFrom = 64 << 10
)

// NewPayment serves PaymentService over a store. reader reads the tokens of writes; watch is told what was refused.
func NewPayment(
	store *account.Store, reader fence.Reader, watch *telemetry.Payment, tracer trace.Tracer, logger *slog.Logger,
) http.Handler {
	_, handler := paymentsv1connect.NewPaymentServiceHandler(&payments{store, watch, tracer}, options(reader, logger))
	return handler
}

// NewRail serves RailService over a proxy. reader reads the tokens of submissions and lookups.
func NewRail(proxy *rail.Proxy, reader fence.Reader, tracer trace.Tracer, logger *slog.Logger) http.Handler {
	_, handler := paymentsv1connect.NewRailServiceHandler(&submissions{proxy, tracer}, options(reader, logger))
	return handler
}

// unguarded are the procedures that are not made under a lock.
func unguarded() []string {
	return []string{
		paymentsv1connect.PaymentServiceOpenAccountProcedure, paymentsv1connect.PaymentServiceCreatePayoutProcedure,
		paymentsv1connect.PaymentServiceListPayoutsProcedure, paymentsv1connect.PaymentServiceGetPayoutProcedure,
		paymentsv1connect.PaymentServiceGetLedgerProcedure, paymentsv1connect.PaymentServiceListEventsProcedure,
		paymentsv1connect.RailServiceListSubmissionsProcedure,
	}
}

func options(reader fence.Reader, logger *slog.Logger) connect.HandlerOption {
	return connect.WithHandlerOptions(
		connect.WithReadMaxBytes(maxMessage),
		connect.WithCompressMinBytes(compressFrom),
		rpc.StrictJSON(),
		connect.WithInterceptors(edge(), guard.NewInterceptor(reader, keyOf, guard.WithUnguarded(unguarded()...))),
		connect.WithRecover(func(ctx context.Context, spec connect.Spec, _ http.Header, value any) error {
			logger.LogAttrs(ctx, slog.LevelError, "panic", slog.String("procedure", spec.Procedure),
				slog.String("value", fmt.Sprint(value)), slog.String("stack", string(debug.Stack())))
			return connect.NewError(connect.CodeInternal, errors.New("internal error"))
		}),
	)
}
