package api

import (
	"context"

	"connectrpc.com/connect"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	"github.com/fencelock/fencelock/adapters/rpc/guard"
	"github.com/fencelock/fencelock/apps/payments/internal/form"
	"github.com/fencelock/fencelock/apps/payments/internal/refusal"
	"github.com/fencelock/fencelock/core/lock"
)

// Scope names what spans are of.
const Scope = "github.com/fencelock/fencelock/apps/payments"

// keyOf is the lock of the account that a message names.
func keyOf(req connect.AnyRequest) (lock.Key, error) {
	named, _ := req.Any().(interface{ GetAccount() string })
	if err := form.ID("account", named.GetAccount()); err != nil {
		return lock.Key{}, err
	}
	return lock.NewKey("", "payout:"+named.GetAccount())
}

// target is what a call under the lock of an account is about.
type target struct{ payout, account string }

// under makes a call with the token that was read for it, as one span.
func under[T any](
	ctx context.Context, tracer trace.Tracer, span string, to target, call func(context.Context, lock.Token) (T, error),
) (T, error) {
	token, _ := guard.Token(ctx) // where there is none, nothing comes here; and 0 is refused
	ctx, s := tracer.Start(ctx, span, trace.WithAttributes(
		attribute.String("payout.id", to.payout), attribute.String("payout.account", to.account),
		attribute.Int64("lock.token", int64(token)),
	))
	defer s.End()
	result, err := call(ctx, token)
	if err != nil {
		// No more than the code: texts may hold words of drivers.
		s.SetStatus(codes.Error, string(lock.CodeOf(err))+string(refusal.CodeOf(err)))
	}
	return result, err
}
