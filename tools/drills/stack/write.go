package stack

import (
	"context"
	"fmt"

	"connectrpc.com/connect"

	v1 "github.com/fencelock/fencelock/contracts/api/fencelock/payments/v1"
	"github.com/fencelock/fencelock/tools/drills/gate"
)

// Write makes a call that a holder of the account's lock makes for a payout: [gate.Claim], [gate.Advance] to RAIL_SUBMITTED, and
// [gate.Post] at the payment resource, [gate.Submit] and [gate.Lookup] at the proxy. token is the text of the header.
func (s *Stack) Write(ctx context.Context, method string, o Order, token string) error {
	var err error
	switch method {
	case gate.Claim:
		_, err = s.payments.Claim(ctx, under(token, &v1.ClaimRequest{Id: o.ID, Account: o.Account}))
	case gate.Advance:
		_, err = s.payments.Advance(ctx, under(token, &v1.AdvanceRequest{
			Id: o.ID, Account: o.Account, From: v1.PayoutState_PAYOUT_STATE_CLAIMED, To: v1.PayoutState_PAYOUT_STATE_RAIL_SUBMITTED,
		}))
	case gate.Post:
		_, err = s.payments.Post(ctx, under(token, &v1.PostRequest{Id: o.ID, Account: o.Account}))
	case gate.Submit:
		_, err = s.rail.Submit(ctx, under(token, &v1.SubmitRequest{
			Payout: o.ID, Account: o.Account, Amount: o.Amount, Destination: o.Destination,
		}))
	case gate.Lookup:
		_, err = s.rail.Lookup(ctx, under(token, &v1.LookupRequest{Payout: o.ID, Account: o.Account}))
	default:
		return fmt.Errorf("%s is no write", method)
	}
	if err != nil {
		return fmt.Errorf("%s of payout %s: %w", method, o.ID, err)
	}
	return nil
}

// under is a request that carries a token.
func under[M any](token string, message *M) *connect.Request[M] {
	req := connect.NewRequest(message)
	req.Header().Set(gate.TokenHeader, token)
	return req
}
