package payout

import (
	"fmt"
	"time"

	"github.com/fencelock/fencelock/core/lock"
)

// Outcome is how an execution ended.
type Outcome string

// The outcomes. The first four brought the payout into the state of that name.
const (
	// Posted: it is in the ledger.
	Posted Outcome = "posted"
	// Failed: the rail has declined it.
	Failed Outcome = "failed"
	// Abandoned: it was given up before the rail was called.
	Abandoned Outcome = "abandoned"
	// Ambiguous: the rail was called and its answer is not known.
	Ambiguous Outcome = "ambiguous"
	// Contended: somebody else has the account's lock; nothing was done.
	Contended Outcome = "contended"
	// Over: it was in a terminal state before.
	Over Outcome = "over"
	// Unresolved: it was ambiguous before, and there is no evidence yet.
	Unresolved Outcome = "unresolved"
	// Reserved: the rail may have taken the account's money for other payouts; nothing was sent, and it waits until that is known.
	Reserved Outcome = "reserved"
	// Left: the execution ended early; the payout waits for the next one.
	Left Outcome = "left"
)

// Result is what an execution came to.
type Result struct {
	Outcome Outcome
	// Token of the grant; 0 without one.
	Token lock.Token
	// Err says why the payout was left.
	Err error
}

// EventKind names what happened.
type EventKind string

// The events. Each but PayoutReserved, FencedOut and PayoutLeft is a state that the payment resource has confirmed.
const (
	// PayoutClaimed: the payout is this grant's to execute.
	PayoutClaimed EventKind = "payout_claimed"
	// RailSubmission: the payout goes to the rail now.
	RailSubmission EventKind = "rail_submitted"
	// RailAmbiguity: the rail's answer is not known.
	RailAmbiguity EventKind = "rail_ambiguous"
	// PayoutPosted: it is in the ledger.
	PayoutPosted EventKind = "payout_posted"
	// PayoutFailed: the rail has declined it.
	PayoutFailed EventKind = "payout_failed"
	// PayoutAbandoned: it was given up before the rail was called.
	PayoutAbandoned EventKind = "payout_abandoned"
	// PayoutReserved: the rail may have taken the account's money for other payouts; it waits until that is known.
	PayoutReserved EventKind = "payout_reserved"
	// FencedOut: a resource has refused the token; the execution ends.
	FencedOut EventKind = "fenced_out"
	// PayoutLeft: the execution ended early for another reason.
	PayoutLeft EventKind = "payout_left"
)

// Resource is what a fence stands before, as the label of lock_fenced_out_total names it.
type Resource string

// The resources.
const (
	// ResourceAccount refuses claims and steps.
	ResourceAccount Resource = "account"
	// ResourceLedger refuses postings.
	ResourceLedger Resource = "ledger"
	// ResourceRail refuses submissions and lookups.
	ResourceRail Resource = "rail"
)

// Event is something that happened in an execution.
type Event struct {
	Kind   EventKind
	Payout Payout
	// Token of the grant; 0 without one.
	Token lock.Token
	// Took is the time since the execution began.
	Took time.Duration
	// Resource is the one that the token was presented to last: for FencedOut, the one that has refused it.
	Resource Resource
	// Err is why, for FencedOut and PayoutLeft.
	Err error
}

// Refusal is why a service refused a call, beside the closed set of core/lock.
type Refusal string

// The refusals.
const (
	// NotFound: there is no such account or payout.
	NotFound Refusal = "NOT_FOUND"
	// WrongState: the payout is in another state.
	WrongState Refusal = "WRONG_STATE"
	// Different: something of that name exists with other values.
	Different Refusal = "DIFFERENT"
	// Duplicate: the payout was submitted before; nothing was sent.
	Duplicate Refusal = "DUPLICATE"
	// InsufficientFunds: the account's balance is below the amount.
	InsufficientFunds Refusal = "INSUFFICIENT_FUNDS"
	// FundsReserved: the balance covers the payout, but not beside others that the rail may have taken. It may once their fate is known.
	FundsReserved Refusal = "FUNDS_RESERVED"
	// WrongBalance: the balance that was to be posted is not the account's less the amount.
	WrongBalance Refusal = "WRONG_BALANCE"
)

// RefusedError is a definite answer: nothing was done, and but for FundsReserved nothing will come of trying again.
type RefusedError struct {
	Code Refusal
	// State of the payout, for WrongState.
	State State
}

// Error implements error.
func (e *RefusedError) Error() string {
	if e.State != "" {
		return fmt.Sprintf("refused: %s, the payout is %s", e.Code, e.State)
	}
	return "refused: " + string(e.Code)
}
