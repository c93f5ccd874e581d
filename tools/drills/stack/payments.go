package stack

import (
	"context"
	"fmt"
	"strings"

	"connectrpc.com/connect"

	v1 "github.com/fencelock/fencelock/contracts/api/fencelock/payments/v1"
	fencelockv1 "github.com/fencelock/fencelock/contracts/api/fencelock/v1"
	"github.com/fencelock/fencelock/contracts/api/fencelock/v1/fencelockv1connect"
	"github.com/fencelock/fencelock/core/lock"
	"github.com/fencelock/fencelock/tools/drills/judge"
)

// page is how many rows are asked for at a time.
const page = 1000

// statePrefix stands before the names of states on the wire.
const statePrefix = "PAYOUT_STATE_"

// Order is a payout to be made.
type Order struct {
	ID, Account string
	// Amount is in minor units.
	Amount int64
	// Destination as the rail knows it; empty is an ordinary one.
	Destination string
}

// OpenAccount makes an account with a balance in minor units.
func (s *Stack) OpenAccount(ctx context.Context, id string, balance int64) error {
	_, err := s.payments.OpenAccount(ctx, connect.NewRequest(&v1.OpenAccountRequest{Id: id, Balance: balance}))
	if err != nil {
		return fmt.Errorf("open account %s: %w", id, err)
	}
	return nil
}

// Create asks for a payout.
func (s *Stack) Create(ctx context.Context, o Order) error {
	if o.Destination == "" {
		o.Destination = "somewhere"
	}
	_, err := s.payments.CreatePayout(ctx, connect.NewRequest(&v1.CreatePayoutRequest{
		Id: o.ID, Account: o.Account, Amount: o.Amount, Destination: o.Destination,
	}))
	if err != nil {
		return fmt.Errorf("create payout %s: %w", o.ID, err)
	}
	return nil
}

// Payout is a payout as the resource has it.
type Payout struct {
	judge.Payout

	// Token under which its state was written.
	Token lock.Token
	// Reason of its state.
	Reason string
}

// Payouts lists all payouts.
func (s *Stack) Payouts(ctx context.Context) ([]Payout, error) {
	var all []Payout
	for token := ""; ; {
		got, err := s.payments.ListPayouts(ctx, connect.NewRequest(&v1.ListPayoutsRequest{PageSize: page, PageToken: token}))
		if err != nil {
			return nil, fmt.Errorf("list payouts: %w", err)
		}
		for _, p := range got.Msg.GetPayouts() {
			all = append(all, payout(p))
		}
		if token = got.Msg.GetNextPageToken(); token == "" {
			return all, nil
		}
	}
}

// Payout reads one payout.
func (s *Stack) Payout(ctx context.Context, id string) (Payout, error) {
	got, err := s.payments.GetPayout(ctx, connect.NewRequest(&v1.GetPayoutRequest{Id: id}))
	if err != nil {
		return Payout{}, fmt.Errorf("get payout %s: %w", id, err)
	}
	return payout(got.Msg.GetPayout()), nil
}

func payout(p *v1.Payout) Payout {
	return Payout{
		Payout: judge.Payout{ID: p.GetId(), Account: p.GetAccount(), Amount: p.GetAmount(), State: state(p.GetState())},
		Token:  lock.Token(p.GetToken()), Reason: p.GetReason(),
	}
}

// state names a state; the empty one stands for what was before a payout was made.
func state(s v1.PayoutState) judge.State {
	if s == v1.PayoutState_PAYOUT_STATE_UNSPECIFIED {
		return ""
	}
	return judge.State(strings.TrimPrefix(s.String(), statePrefix))
}

// States counts payouts by state.
func States(payouts []Payout) map[judge.State]int {
	states := map[judge.State]int{}
	for _, p := range payouts {
		states[p.State]++
	}
	return states
}

// Events lists the history of all payouts.
func (s *Stack) Events(ctx context.Context) ([]judge.Event, error) {
	var all []judge.Event
	for token := ""; ; {
		got, err := s.payments.ListEvents(ctx, connect.NewRequest(&v1.ListEventsRequest{PageSize: page, PageToken: token}))
		if err != nil {
			return nil, fmt.Errorf("list events: %w", err)
		}
		for _, e := range got.Msg.GetEvents() {
			all = append(all, judge.Event{
				Payout: e.GetPayout(), Account: e.GetAccount(), From: state(e.GetFrom()), To: state(e.GetTo()),
				Token: lock.Token(e.GetToken()), Fence: lock.Token(e.GetFence()),
			})
		}
		if token = got.Msg.GetNextPageToken(); token == "" {
			return all, nil
		}
	}
}

// Ledger reads the whole ledger.
func (s *Stack) Ledger(ctx context.Context) (accounts []judge.Account, groups []judge.Group, err error) {
	for token := ""; ; {
		got, err := s.payments.GetLedger(ctx, connect.NewRequest(&v1.GetLedgerRequest{PageSize: page, PageToken: token}))
		if err != nil {
			return nil, nil, fmt.Errorf("read ledger: %w", err)
		}
		for _, a := range got.Msg.GetAccounts() {
			accounts = append(accounts, judge.Account{
				ID: a.GetId(), Balance: a.GetBalance(), Opening: a.GetOpening(), Entries: a.GetEntries(),
			})
		}
		for _, g := range got.Msg.GetGroups() {
			groups = append(groups, judge.Group{Payout: g.GetPayout(), Entries: int(g.GetEntries()), Sum: g.GetSum(), Paid: g.GetPaid()})
		}
		if token = got.Msg.GetNextPageToken(); token == "" {
			return accounts, groups, nil
		}
	}
}

// Submissions lists what the proxy has sent, or was about to send.
func (s *Stack) Submissions(ctx context.Context) ([]judge.Submission, error) {
	var all []judge.Submission
	for token := ""; ; {
		got, err := s.rail.ListSubmissions(ctx, connect.NewRequest(&v1.ListSubmissionsRequest{PageSize: page, PageToken: token}))
		if err != nil {
			return nil, fmt.Errorf("list submissions: %w", err)
		}
		for _, x := range got.Msg.GetSubmissions() {
			all = append(all, judge.Submission{Payout: x.GetPayout(), Account: x.GetAccount(), Token: lock.Token(x.GetToken())})
		}
		if token = got.Msg.GetNextPageToken(); token == "" {
			return all, nil
		}
	}
}

// RaiseFloor has the lock server grant only tokens above the number from now on, as an operator would.
func (s *Stack) RaiseFloor(ctx context.Context, above lock.Token) error {
	admin := fencelockv1connect.NewAdminServiceClient(s.client, s.Lock.URL(), insist())
	_, err := admin.RaiseTokenFloor(ctx, connect.NewRequest(&fencelockv1.RaiseTokenFloorRequest{
		Above: int64(above), Operator: "drill", Reason: "tokens of another store are in use",
	}))
	if err != nil {
		return fmt.Errorf("raise floor: %w", err)
	}
	return nil
}
