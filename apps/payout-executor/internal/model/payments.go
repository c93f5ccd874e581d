package model

import (
	"context"
	"slices"
	"strconv"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"

	v1 "github.com/fencelock/fencelock/contracts/api/fencelock/payments/v1"
	"github.com/fencelock/fencelock/contracts/api/fencelock/payments/v1/paymentsv1connect"
)

// standardPage is the size of a page where none is named.
const standardPage = 100

// payments serves PaymentService.
type payments struct {
	paymentsv1connect.UnimplementedPaymentServiceHandler

	w *World
}

// ListPayouts implements PaymentService.
func (s *payments) ListPayouts(
	_ context.Context, req *connect.Request[v1.ListPayoutsRequest],
) (*connect.Response[v1.ListPayoutsResponse], error) {
	return carry(s.w, Call{Service: Payments, Method: "ListPayouts"}, func() (*v1.ListPayoutsResponse, error) {
		found, next := page(s.w.payouts, req.Msg.GetPageSize(), req.Msg.GetPageToken(), func(p *v1.Payout) bool {
			return len(req.Msg.GetStates()) == 0 || slices.Contains(req.Msg.GetStates(), p.GetState())
		})
		return &v1.ListPayoutsResponse{Payouts: found, NextPageToken: next}, nil
	})
}

// page cuts a page out of all; a token is the place to go on from.
func page[M proto.Message](all []M, size int32, token string, wanted func(M) bool) (found []M, next string) {
	if size == 0 {
		size = standardPage
	}
	from, _ := strconv.Atoi(token)
	for i := from; i < len(all); i++ {
		if !wanted(all[i]) {
			continue
		}
		if len(found) == int(size) {
			return found, strconv.Itoa(i)
		}
		found = append(found, proto.CloneOf(all[i]))
	}
	return found, ""
}

// GetPayout implements PaymentService.
func (s *payments) GetPayout(
	_ context.Context, req *connect.Request[v1.GetPayoutRequest],
) (*connect.Response[v1.GetPayoutResponse], error) {
	call := Call{Service: Payments, Method: "GetPayout", Payout: req.Msg.GetId()}
	return carry(s.w, call, func() (*v1.GetPayoutResponse, error) {
		p := s.w.payout(req.Msg.GetId())
		if p == nil {
			return nil, NotFound()
		}
		return &v1.GetPayoutResponse{Payout: proto.CloneOf(p), Account: s.w.accounts[p.GetAccount()].message()}, nil
	})
}

// Claim implements PaymentService.
func (s *payments) Claim(_ context.Context, req *connect.Request[v1.ClaimRequest]) (*connect.Response[v1.ClaimResponse], error) {
	t := token(req.Header())
	call := Call{Service: Payments, Method: "Claim", Payout: req.Msg.GetId(), Account: req.Msg.GetAccount(), Token: t}
	return carry(s.w, call, func() (*v1.ClaimResponse, error) {
		p, a, err := s.w.find(req.Msg.GetId(), req.Msg.GetAccount(), t)
		if err != nil {
			return nil, err
		}
		if err := s.w.claim(p, a, t); err != nil {
			return nil, err
		}
		return &v1.ClaimResponse{Payout: proto.CloneOf(p), Account: a.message()}, nil
	})
}

func (w *World) claim(p *v1.Payout, a *account, t int64) error {
	again := a.fence == t && w.claims[p.GetId()] == t
	switch {
	case again:
		return nil
	case t <= a.fence && !w.unfenced:
		return FencedOut()
	case terminal(p.GetState()):
		return wrongState(p)
	}
	to := p.GetState()
	if to == v1.PayoutState_PAYOUT_STATE_PENDING {
		to = v1.PayoutState_PAYOUT_STATE_CLAIMED
	}
	w.event(p, to, t, a.fence)
	a.fence = max(a.fence, t)
	w.claims[p.GetId()] = t
	p.State, p.Token, p.ChangedAt = to, t, stamp()
	return nil
}

// Advance implements PaymentService.
func (s *payments) Advance(_ context.Context, req *connect.Request[v1.AdvanceRequest]) (*connect.Response[v1.AdvanceResponse], error) {
	t := token(req.Header())
	call := Call{
		Service: Payments, Method: "Advance " + req.Msg.GetTo().String()[len("PAYOUT_STATE_"):],
		Payout: req.Msg.GetId(), Account: req.Msg.GetAccount(), Token: t,
	}
	return carry(s.w, call, func() (*v1.AdvanceResponse, error) {
		p, a, err := s.w.find(req.Msg.GetId(), req.Msg.GetAccount(), t)
		if err != nil {
			return nil, err
		}
		if err := s.w.advance(p, a, t, req.Msg); err != nil {
			return nil, err
		}
		return &v1.AdvanceResponse{Payout: proto.CloneOf(p)}, nil
	})
}

func (w *World) advance(p *v1.Payout, a *account, t int64, req *v1.AdvanceRequest) error {
	acked := req.GetTo() == v1.PayoutState_PAYOUT_STATE_RAIL_ACKED
	switch {
	case !listed(req.GetFrom(), req.GetTo()), acked && req.GetRailReference() == "":
		return wrongState(p)
	case w.unfenced:
	case t != a.fence:
		return FencedOut()
	case p.GetState() == req.GetTo() && p.GetToken() == t: // the answer was lost
		if p.GetReason() != req.GetReason() || acked && p.GetRailReference() != req.GetRailReference() {
			return different()
		}
		return nil
	case p.GetState() != req.GetFrom() || w.claims[p.GetId()] != t:
		return wrongState(p)
	case req.GetTo() == v1.PayoutState_PAYOUT_STATE_RAIL_SUBMITTED:
		if err := w.afford(p, a); err != nil {
			return err
		}
	}
	w.event(p, req.GetTo(), t, a.fence)
	p.State, p.Token, p.Reason, p.ChangedAt = req.GetTo(), t, req.GetReason(), stamp()
	if acked {
		p.RailReference = req.GetRailReference()
	}
	return nil
}

// afford refuses to send a payout for which the account has not enough, without the money that the rail may have taken for others.
func (w *World) afford(p *v1.Payout, a *account) error {
	if a.balance < p.GetAmount() {
		return refusal(connect.CodeFailedPrecondition, v1.ErrorCode_ERROR_CODE_INSUFFICIENT_FUNDS, 0)
	}
	left := a.balance
	for _, other := range w.payouts {
		if other.GetAccount() == a.id && promised(other.GetState()) {
			left -= other.GetAmount()
		}
	}
	if left < p.GetAmount() {
		return refusal(connect.CodeFailedPrecondition, v1.ErrorCode_ERROR_CODE_FUNDS_RESERVED, 0)
	}
	return nil
}

// promised reports whether the rail may have taken the money of a payout, and the ledger does not show it.
func promised(s v1.PayoutState) bool {
	return s == v1.PayoutState_PAYOUT_STATE_RAIL_SUBMITTED || s == v1.PayoutState_PAYOUT_STATE_RAIL_AMBIGUOUS ||
		s == v1.PayoutState_PAYOUT_STATE_RAIL_ACKED
}

// listed reports whether a payout may go from one state to the other, but for posting and claiming.
func listed(from, to v1.PayoutState) bool {
	return slices.Contains(map[v1.PayoutState][]v1.PayoutState{
		v1.PayoutState_PAYOUT_STATE_CLAIMED: {
			v1.PayoutState_PAYOUT_STATE_RAIL_SUBMITTED, v1.PayoutState_PAYOUT_STATE_ABANDONED,
		},
		v1.PayoutState_PAYOUT_STATE_RAIL_SUBMITTED: {
			v1.PayoutState_PAYOUT_STATE_RAIL_ACKED, v1.PayoutState_PAYOUT_STATE_FAILED, v1.PayoutState_PAYOUT_STATE_RAIL_AMBIGUOUS,
		},
		v1.PayoutState_PAYOUT_STATE_RAIL_AMBIGUOUS: {
			v1.PayoutState_PAYOUT_STATE_RAIL_ACKED, v1.PayoutState_PAYOUT_STATE_FAILED,
		},
	}[from], to)
}

// Post implements PaymentService.
func (s *payments) Post(_ context.Context, req *connect.Request[v1.PostRequest]) (*connect.Response[v1.PostResponse], error) {
	t := token(req.Header())
	call := Call{Service: Payments, Method: "Post", Payout: req.Msg.GetId(), Account: req.Msg.GetAccount(), Token: t}
	return carry(s.w, call, func() (*v1.PostResponse, error) {
		p, a, err := s.w.find(req.Msg.GetId(), req.Msg.GetAccount(), t)
		if err != nil {
			return nil, err
		}
		if err := s.w.post(p, a, t, req.Msg.GetBalanceAfter()); err != nil {
			return nil, err
		}
		return &v1.PostResponse{Payout: proto.CloneOf(p), Account: a.message()}, nil
	})
}

func (w *World) post(p *v1.Payout, a *account, t, balance int64) error {
	posted := v1.PayoutState_PAYOUT_STATE_POSTED
	switch {
	case w.unfenced:
	case t != a.fence:
		return FencedOut()
	case p.GetState() == posted && p.GetToken() == t: // the answer was lost
		if a.balance != balance {
			return different()
		}
		return nil
	case p.GetState() != v1.PayoutState_PAYOUT_STATE_RAIL_ACKED || w.claims[p.GetId()] != t:
		return wrongState(p)
	case balance != a.balance-p.GetAmount():
		return refusal(connect.CodeFailedPrecondition, v1.ErrorCode_ERROR_CODE_WRONG_BALANCE, 0)
	}
	w.event(p, posted, t, a.fence)
	w.entries = append(w.entries,
		Entry{p.GetId(), p.GetAccount(), -p.GetAmount()}, Entry{p.GetId(), railAccount, p.GetAmount()})
	a.balance = balance
	p.State, p.Token, p.ChangedAt = posted, t, stamp()
	return nil
}

// find returns a payout and its account for a write. The caller holds mu.
func (w *World) find(id, accountID string, t int64) (*v1.Payout, *account, error) {
	if t <= 0 {
		return nil, nil, noToken()
	}
	p := w.payout(id)
	if p == nil || p.GetAccount() != accountID || w.accounts[accountID] == nil {
		return nil, nil, NotFound()
	}
	return p, w.accounts[accountID], nil
}

func (a *account) message() *v1.Account {
	return &v1.Account{Id: a.id, Balance: a.balance, Fence: a.fence}
}
