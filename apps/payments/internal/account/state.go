package account

import "slices"

// State is where a payout stands.
type State string

// The states of a payout.
const (
	// Pending: nobody has begun.
	Pending State = "PENDING"
	// Claimed: an executor has begun; the rail was not called.
	Claimed State = "CLAIMED"
	// RailSubmitted: the rail may have been called.
	RailSubmitted State = "RAIL_SUBMITTED"
	// RailAcked: the rail has taken it; the ledger does not show it yet.
	RailAcked State = "RAIL_ACKED"
	// Posted: it is in the ledger. Terminal.
	Posted State = "POSTED"
	// Failed: the rail has declined it. Terminal.
	Failed State = "FAILED"
	// RailAmbiguous: the rail was called and its answer is not known.
	RailAmbiguous State = "RAIL_AMBIGUOUS"
	// Abandoned: given up before the rail was called. Terminal.
	Abandoned State = "ABANDONED"
)

// States are all states, in the order of a payout's life.
func States() []State {
	return []State{Pending, Claimed, RailSubmitted, RailAcked, Posted, Failed, RailAmbiguous, Abandoned}
}

// Write is what writes a state.
type Write string

// The writes.
const (
	// ByClaim: the first write of a grant.
	ByClaim Write = "Claim"
	// ByAdvance: a later write.
	ByAdvance Write = "Advance"
	// ByPost: the write that also writes the ledger.
	ByPost Write = "Post"
)

// Transition is a step that a payout may take.
type Transition struct {
	From, To State
	// By is the one write that takes it.
	By Write
}

// Transitions are all steps that a payout may take; what is not listed is refused.
func Transitions() []Transition {
	return []Transition{
		{Pending, Claimed, ByClaim},
		{Claimed, RailSubmitted, ByAdvance},
		{Claimed, Abandoned, ByAdvance},
		{RailSubmitted, RailAcked, ByAdvance},
		{RailSubmitted, Failed, ByAdvance},
		{RailSubmitted, RailAmbiguous, ByAdvance},
		{RailAmbiguous, RailAcked, ByAdvance},
		{RailAmbiguous, Failed, ByAdvance},
		{RailAcked, Posted, ByPost},
	}
}

// Listed reports whether a write may take a payout from one state to another.
func Listed(from, to State, by Write) bool {
	return slices.Contains(Transitions(), Transition{from, to, by})
}

// promisedStates are those in which the rail may have taken the money, and the ledger does not show it.
func promisedStates() []State { return []State{RailSubmitted, RailAmbiguous, RailAcked} }

// Terminal reports whether a payout in this state is over: no transition leads away from it.
func (s State) Terminal() bool {
	return !slices.ContainsFunc(Transitions(), func(t Transition) bool { return t.From == s })
}
