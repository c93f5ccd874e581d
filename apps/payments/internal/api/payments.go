package api

import (
	"context"

	"connectrpc.com/connect"
	"go.opentelemetry.io/otel/trace"

	"github.com/fencelock/fencelock/apps/payments/internal/account"
	"github.com/fencelock/fencelock/apps/payments/internal/telemetry"
	paymentsv1 "github.com/fencelock/fencelock/contracts/api/fencelock/payments/v1"
	"github.com/fencelock/fencelock/core/lock"
)

// payments implements PaymentService.
type payments struct {
	store  *account.Store
	watch  *telemetry.Payment
	tracer trace.Tracer
}

// answered is an answer with a message, or the error.
func answered[M any](message *M, err error) (*connect.Response[M], error) {
	if err != nil {
		return nil, err
	}
	return connect.NewResponse(message), nil
}

// OpenAccount implements paymentsv1connect.PaymentServiceHandler.
func (p *payments) OpenAccount(
	ctx context.Context, req *connect.Request[paymentsv1.OpenAccountRequest],
) (*connect.Response[paymentsv1.OpenAccountResponse], error) {
	a, err := p.store.OpenAccount(ctx, req.Msg.GetId(), req.Msg.GetBalance())
	return answered(&paymentsv1.OpenAccountResponse{Account: accountToWire(a)}, err)
}

// CreatePayout implements paymentsv1connect.PaymentServiceHandler.
func (p *payments) CreatePayout(
	ctx context.Context, req *connect.Request[paymentsv1.CreatePayoutRequest],
) (*connect.Response[paymentsv1.CreatePayoutResponse], error) {
	made, err := p.store.CreatePayout(ctx, account.NewPayout{
		ID: req.Msg.GetId(), Account: req.Msg.GetAccount(), Amount: req.Msg.GetAmount(), Destination: req.Msg.GetDestination(),
	})
	return answered(&paymentsv1.CreatePayoutResponse{Payout: payoutToWire(made)}, err)
}

// ListPayouts implements paymentsv1connect.PaymentServiceHandler.
func (p *payments) ListPayouts(
	ctx context.Context, req *connect.Request[paymentsv1.ListPayoutsRequest],
) (*connect.Response[paymentsv1.ListPayoutsResponse], error) {
	page, next, err := p.store.ListPayouts(ctx, each(req.Msg.GetStates(), stateFromWire), req.Msg.GetPageSize(), req.Msg.GetPageToken())
	return answered(&paymentsv1.ListPayoutsResponse{Payouts: each(page, payoutToWire), NextPageToken: next}, err)
}

// GetPayout implements paymentsv1connect.PaymentServiceHandler.
func (p *payments) GetPayout(
	ctx context.Context, req *connect.Request[paymentsv1.GetPayoutRequest],
) (*connect.Response[paymentsv1.GetPayoutResponse], error) {
	v, err := p.store.GetPayout(ctx, req.Msg.GetId())
	return answered(&paymentsv1.GetPayoutResponse{Payout: payoutToWire(v.Payout), Account: accountToWire(v.Account)}, err)
}

// write makes a write under the lock of an account, and tells if it was refused.
func write[T any](
	ctx context.Context, p *payments, span, resource string, ref account.Ref, do func(context.Context, lock.Token) (T, error),
) (T, error) {
	return under(ctx, p.tracer, span, target{ref.Payout, ref.Account},
		func(ctx context.Context, token lock.Token) (T, error) {
			result, err := do(ctx, token)
			if err != nil {
				p.watch.Refused(ctx, resource, ref, token, err)
			}
			return result, err
		})
}

// Claim implements paymentsv1connect.PaymentServiceHandler.
func (p *payments) Claim(
	ctx context.Context, req *connect.Request[paymentsv1.ClaimRequest],
) (*connect.Response[paymentsv1.ClaimResponse], error) {
	ref := account.Ref{Payout: req.Msg.GetId(), Account: req.Msg.GetAccount()}
	v, err := write(ctx, p, "payment.claim", telemetry.ResourceAccount, ref,
		func(ctx context.Context, token lock.Token) (account.View, error) {
			return p.store.Claim(ctx, ref, token)
		})
	return answered(&paymentsv1.ClaimResponse{Payout: payoutToWire(v.Payout), Account: accountToWire(v.Account)}, err)
}

// Advance implements paymentsv1connect.PaymentServiceHandler.
func (p *payments) Advance(
	ctx context.Context, req *connect.Request[paymentsv1.AdvanceRequest],
) (*connect.Response[paymentsv1.AdvanceResponse], error) {
	ref := account.Ref{Payout: req.Msg.GetId(), Account: req.Msg.GetAccount()}
	step := account.Step{
		From: stateFromWire(req.Msg.GetFrom()), To: stateFromWire(req.Msg.GetTo()),
		RailReference: req.Msg.GetRailReference(), Reason: req.Msg.GetReason(),
	}
	moved, err := write(ctx, p, "payment.advance", telemetry.ResourceAccount, ref,
		func(ctx context.Context, token lock.Token) (account.Payout, error) {
			return p.store.Advance(ctx, ref, token, step)
		})
	return answered(&paymentsv1.AdvanceResponse{Payout: payoutToWire(moved)}, err)
}

// Post implements paymentsv1connect.PaymentServiceHandler.
func (p *payments) Post(
	ctx context.Context, req *connect.Request[paymentsv1.PostRequest],
) (*connect.Response[paymentsv1.PostResponse], error) {
	ref := account.Ref{Payout: req.Msg.GetId(), Account: req.Msg.GetAccount()}
	v, err := write(ctx, p, "payment.post", telemetry.ResourceLedger, ref,
		func(ctx context.Context, token lock.Token) (account.View, error) {
			return p.store.Post(ctx, ref, token, req.Msg.GetBalanceAfter())
		})
	return answered(&paymentsv1.PostResponse{Payout: payoutToWire(v.Payout), Account: accountToWire(v.Account)}, err)
}

// GetLedger implements paymentsv1connect.PaymentServiceHandler.
func (p *payments) GetLedger(
	ctx context.Context, req *connect.Request[paymentsv1.GetLedgerRequest],
) (*connect.Response[paymentsv1.GetLedgerResponse], error) {
	l, next, err := p.store.GetLedger(ctx, req.Msg.GetAccount(), req.Msg.GetPageSize(), req.Msg.GetPageToken())
	return answered(&paymentsv1.GetLedgerResponse{
		Accounts: each(l.Accounts, sumToWire), Groups: each(l.Groups, groupToWire), NextPageToken: next,
	}, err)
}

// ListEvents implements paymentsv1connect.PaymentServiceHandler.
func (p *payments) ListEvents(
	ctx context.Context, req *connect.Request[paymentsv1.ListEventsRequest],
) (*connect.Response[paymentsv1.ListEventsResponse], error) {
	page, next, err := p.store.ListEvents(ctx, req.Msg.GetPageSize(), req.Msg.GetPageToken())
	return answered(&paymentsv1.ListEventsResponse{Events: each(page, eventToWire), NextPageToken: next}, err)
}
