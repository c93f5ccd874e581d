package rail

import (
	"context"
	"time"

	"github.com/fencelock/fencelock/apps/payments/internal/form"
	"github.com/fencelock/fencelock/core/lock"
)

// Outcome is what became of a submission.
type Outcome string

// The outcomes.
const (
	// Unknown: the rail may have executed it or not.
	Unknown Outcome = ""
	// Acked: the rail has executed it.
	Acked Outcome = "ACKED"
	// Rejected: the rail has declined it; no money has moved.
	Rejected Outcome = "REJECTED"
)

// Order is a payout to send.
type Order struct {
	Payout, Account string
	// Amount is in minor units.
	Amount      int64
	Destination string
}

func (o Order) check() error {
	if err := checkRef(o.Payout, o.Account); err != nil {
		return err
	}
	if err := form.Amount("amount", o.Amount); err != nil {
		return err
	}
	return form.Destination("destination", o.Destination)
}

func checkRef(payout, account string) error {
	if err := form.ID("payout", payout); err != nil {
		return err
	}
	return form.ID("account", account)
}

// Submission is one payout that was sent to the rail, or was about to be.
type Submission struct {
	Order

	// Number orders submissions.
	Number int64
	// Token is the one under which it was sent.
	Token lock.Token
	// Outcome is written once.
	Outcome Outcome
	// RailReference is the rail's name for what it has executed or declined.
	RailReference string
	// Reason says why it is [Rejected].
	Reason      string
	SubmittedAt time.Time
	// Transfers is how many transfers the rail itself has executed for the payout, where [Proxy.Lookup] has asked it; else 0.
	Transfers int
}

// Kind is a kind of [Event].
type Kind string

// What a [Proxy] tells of.
const (
	// EventSubmitted: the intent is on disk, the transfer is about to be sent.
	EventSubmitted Kind = "rail_submitted"
	// EventAnswered: the rail has executed or declined it.
	EventAnswered Kind = "rail_answered"
	// EventAmbiguous: the rail gave no answer that settles it.
	EventAmbiguous Kind = "rail_ambiguous"
	// EventStillAmbiguous: a lookup found nothing that settles it either.
	EventStillAmbiguous Kind = "rail_still_ambiguous"
	// EventResolved: a lookup found what had become of a submission without an outcome.
	EventResolved Kind = "rail_resolved"
	// EventUnrecorded: an outcome that is known could not be written.
	EventUnrecorded Kind = "rail_outcome_unrecorded"
	// EventDuplicate: a payout was to be submitted again; nothing was sent.
	EventDuplicate Kind = "duplicate_rail_submission_attempted"
	// EventFencedOut: a submission or a lookup had a token below the account's mark.
	EventFencedOut Kind = "fenced_out"
)

// Event is something that the proxy did, or refused.
type Event struct {
	Kind       Kind
	Submission Submission
	// Lookup: the call was a lookup, not a submission.
	Lookup bool
	// Cause is why, where there is an error.
	Cause error
}

// Observer is told of events. It must not block.
type Observer func(context.Context, Event)
