package payout

import (
	"time"

	"github.com/fencelock/fencelock/core/lock"
)

// State is where a payout stands.
type State string

// The states of a payout.
const (
	// StatePending: nobody has begun.
	StatePending State = "PENDING"
	// StateClaimed: an executor has begun; the rail was not called.
	StateClaimed State = "CLAIMED"
	// StateRailSubmitted: the rail may have been called.
	StateRailSubmitted State = "RAIL_SUBMITTED"
	// StateRailAcked: the rail has taken it; the ledger does not show it yet.
	StateRailAcked State = "RAIL_ACKED"
	// StateRailAmbiguous: the rail was called and its answer is not known.
	StateRailAmbiguous State = "RAIL_AMBIGUOUS"
	// StatePosted: it is in the ledger. Terminal.
	StatePosted State = "POSTED"
	// StateFailed: the rail has declined it. Terminal.
	StateFailed State = "FAILED"
	// StateAbandoned: given up before the rail was called. Terminal.
	StateAbandoned State = "ABANDONED"
)

// Terminal reports whether nothing follows.
func (s State) Terminal() bool { return s == StatePosted || s == StateFailed || s == StateAbandoned }

// Begun reports whether some executor has begun, and it is neither over nor waiting for evidence.
func (s State) Begun() bool {
	return s == StateClaimed || s == StateRailSubmitted || s == StateRailAcked
}

// Ref names a payout and the account that it leaves.
type Ref struct{ ID, Account string }

// Payout is money on its way out of an account.
type Payout struct {
	Ref

	// Amount in minor units, above 0.
	Amount int64
	// Destination as the rail knows it.
	Destination string
	State       State
	// Token under which the state was written; 0 for StatePending.
	Token lock.Token
	// Reference is the rail's name for the transfer.
	Reference string
	// Reason says why it is StateFailed, StateAbandoned or StateRailAmbiguous.
	Reason string
	// CreatedAt is when it was asked for, on the clock of the payment resource.
	CreatedAt time.Time
}

// Picture is a payout and its account at one moment.
type Picture struct {
	Payout Payout
	// Balance of the account in minor units.
	Balance int64
}

// SubmissionOutcome is what became of a submission to the rail.
type SubmissionOutcome string

// The outcomes of a submission.
const (
	// Unknown: the rail may or may not have taken it.
	Unknown SubmissionOutcome = "unknown"
	// Acked: the rail has taken it.
	Acked SubmissionOutcome = "acked"
	// Rejected: the rail has declined it; no money has moved.
	Rejected SubmissionOutcome = "rejected"
)

// Submission is what the proxy before the rail knows of a payout that was sent.
type Submission struct {
	Ref

	// Amount in minor units.
	Amount int64
	// Token under which it was sent.
	Token   lock.Token
	Outcome SubmissionOutcome
	// Reference is the rail's name for the transfer.
	Reference string
	// Reason of a rejection.
	Reason string
	// Transfers is how many transfers the rail itself has for the payout; 0 where it was not asked.
	Transfers int
}

// Token is the fencing token of a grant.
type Token struct {
	// Number is the token itself.
	Number lock.Token
	// Text is how it travels with a write: the number in decimal, or a signed form of it.
	Text string
}
