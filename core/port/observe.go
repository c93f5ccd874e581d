package port

import (
	"context"
	"time"

	"github.com/fencelock/fencelock/core/lock"
)

// Clock tells elapsed time since some fixed moment of this process. It keeps
// running while the machine is suspended and never goes back. Clocks of two
// machines are never compared.
type Clock interface {
	Elapsed() time.Duration
}

// EventKind names what the service did or saw.
type EventKind string

// The events of the service. The first group carries the names that logs use.
const (
	EventSessionOpened EventKind = "session_opened"
	EventSessionClosed EventKind = "session_closed"
	EventSessionLost   EventKind = "session_lost"
	EventGranted       EventKind = "lock_granted"
	EventReleased      EventKind = "lock_released"
	EventLeaseExpired  EventKind = "lease_expired"
	EventRevoked       EventKind = "lock_revoked"
	// EventHandoff: a release handed the grant to a waiter; also an EventGranted.
	EventHandoff EventKind = "lock_handoff"
	// EventAcquired ends every acquire call; Outcome and Duration are set.
	EventAcquired EventKind = "acquire_finished"
	// EventWaiting: the number of waiters of this server changed to Count.
	EventWaiting EventKind = "waiters_changed"
	// EventFallback: a waiter was woken by its fallback poll and found the key free.
	EventFallback EventKind = "wait_fallback"
	// EventFloorRaised: an operator raised the floor of all tokens.
	EventFloorRaised EventKind = "floor_raised"
)

// Outcomes of EventAcquired.
const (
	OutcomeGranted   = "granted"
	OutcomeContended = "contended"
	OutcomeError     = "error"
)

// Event is one report to an [Observer]. Fields are set as the kind knows them.
type Event struct {
	Kind     EventKind
	Key      lock.Key
	Session  lock.SessionID
	Owner    lock.Owner
	Token    lock.Token
	Outcome  string
	Duration time.Duration
	Count    int
	Err      error
}

// Observer receives what the service reports; the core itself neither logs
// nor counts. Observe must not block.
type Observer interface {
	Observe(ctx context.Context, event Event)
}
