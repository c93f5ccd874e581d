package api

import (
	"strings"

	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/fencelock/fencelock/apps/payments/internal/account"
	"github.com/fencelock/fencelock/apps/payments/internal/rail"
	paymentsv1 "github.com/fencelock/fencelock/contracts/api/fencelock/payments/v1"
)

// What stands before the names of the wire's values.
const (
	statePrefix   = "PAYOUT_STATE_"
	outcomePrefix = "SUBMISSION_OUTCOME_"
)

// stateToWire is the wire's value of a state; none is unspecified.
func stateToWire[S ~string](s S) paymentsv1.PayoutState {
	return paymentsv1.PayoutState(paymentsv1.PayoutState_value[statePrefix+string(s)])
}

// stateFromWire is a state that, for a value that the wire does not have, is none of the listed ones.
func stateFromWire(s paymentsv1.PayoutState) account.State {
	return account.State(strings.TrimPrefix(s.String(), statePrefix))
}

func accountToWire(a account.Account) *paymentsv1.Account {
	return &paymentsv1.Account{Id: a.ID, Balance: a.Balance, Fence: int64(a.Fence)}
}

func payoutToWire(p account.Payout) *paymentsv1.Payout {
	return &paymentsv1.Payout{
		Id: p.ID, Account: p.Account, Amount: p.Amount, Destination: p.Destination, State: stateToWire(p.State), Token: int64(p.Token),
		RailReference: p.RailReference, Reason: p.Reason, CreatedAt: timestamppb.New(p.CreatedAt), ChangedAt: timestamppb.New(p.ChangedAt),
	}
}

func eventToWire(e account.Event) *paymentsv1.PayoutEvent {
	return &paymentsv1.PayoutEvent{
		Number: e.Number, Payout: e.Payout, Account: e.Account, From: stateToWire(e.From), To: stateToWire(e.To),
		Token: int64(e.Token), Fence: int64(e.Fence), At: timestamppb.New(e.At),
	}
}

func sumToWire(s account.Sum) *paymentsv1.LedgerAccount {
	return &paymentsv1.LedgerAccount{Id: s.Account, Balance: s.Balance, Opening: s.Opening, Entries: s.Entries}
}

func groupToWire(g account.Group) *paymentsv1.LedgerGroup {
	return &paymentsv1.LedgerGroup{
		Payout: g.Payout, Entries: int32(g.Entries), Sum: g.Sum, Paid: g.Paid, //nolint:gosec // a payout has a few entries
	}
}

func submissionToWire(s rail.Submission) *paymentsv1.Submission {
	return &paymentsv1.Submission{
		Payout: s.Payout, Account: s.Account, Amount: s.Amount, Destination: s.Destination, Token: int64(s.Token),
		Outcome:       paymentsv1.SubmissionOutcome(paymentsv1.SubmissionOutcome_value[outcomePrefix+string(s.Outcome)]),
		RailReference: s.RailReference, Reason: s.Reason, SubmittedAt: timestamppb.New(s.SubmittedAt),
		Transfers: int32(s.Transfers), //nolint:gosec // a payout has a few transfers
	}
}

// each converts all elements.
func each[A, B any](all []A, convert func(A) B) []B {
	out := make([]B, len(all))
	for i, a := range all {
		out[i] = convert(a)
	}
	return out
}
