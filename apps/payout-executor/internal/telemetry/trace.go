package telemetry

import (
	"context"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	"github.com/fencelock/fencelock/apps/payout-executor/internal/payout"
	"github.com/fencelock/fencelock/core/lock"
)

// Scope names what is instrumented.
const Scope = "github.com/fencelock/fencelock/apps/payout-executor"

// ExecuteFunc executes a payout, as [payout.Executor.Execute] does.
type ExecuteFunc func(ctx context.Context, p payout.Payout) payout.Result

// Traced makes each execution a span. Its token is 0 where there was no grant.
func Traced(execute ExecuteFunc, tracer trace.Tracer) ExecuteFunc {
	return func(ctx context.Context, p payout.Payout) payout.Result {
		ctx, span := tracer.Start(ctx, "payout.execute", trace.WithAttributes(
			attribute.String("payout.id", p.ID),
			attribute.String("payout.account", p.Account),
			attribute.String("payout.outcome", ""),
			attribute.Int64("lock.token", 0),
		))
		defer span.End()
		result := execute(ctx, p)
		span.SetAttributes(
			attribute.String("payout.outcome", string(result.Outcome)),
			attribute.Int64("lock.token", int64(result.Token)),
		)
		if result.Err != nil {
			// No more than the code: texts may hold words of drivers.
			span.SetStatus(codes.Error, string(lock.CodeOf(result.Err)))
		}
		return result
	}
}
