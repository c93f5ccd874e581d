package bank

import (
	"math/rand/v2"
	"time"

	"github.com/fencelock/fencelock/core/lock"
)

// The destinations with a meaning.
const (
	// ToDecline is declined.
	ToDecline = "decline"
	// ToLoseReply is executed, and its caller gets no answer.
	ToLoseReply = "lost-reply"
	// ToLoseRequest is not executed, and its caller gets no answer.
	ToLoseRequest = "lost-request"
)

// MaxLatency bounds the latency that can be set.
const MaxLatency = 10 * time.Minute

// Faults is what goes wrong with transfers to other destinations than those with a meaning. The zero value is a rail that works.
type Faults struct {
	// Latency passes between the arrival of a transfer and its execution, whether or not its caller still waits.
	Latency time.Duration
	// Decline is the share of transfers that are declined, 0 to 1.
	Decline float64
	// LoseReply is the share of the others that are executed and not answered, 0 to 1.
	LoseReply float64
}

// Check refuses what cannot be, with [lock.ErrInvalid].
func (f Faults) Check() error {
	switch {
	case f.Latency < 0 || f.Latency > MaxLatency:
		return lock.Invalid("latency", "must be 0 to 10m")
	case !(f.Decline >= 0 && f.Decline <= 1): // also refuses NaN
		return lock.Invalid("decline", "must be 0 to 1")
	case !(f.LoseReply >= 0 && f.LoseReply <= 1):
		return lock.Invalid("lose_reply", "must be 0 to 1")
	}
	return nil
}

// fate is what happens to one transfer.
type fate struct{ decline, loseRequest, loseReply bool }

// draw decides the fate of a transfer.
func (f Faults) draw(destination string) fate {
	switch destination {
	case ToDecline:
		return fate{decline: true}
	case ToLoseReply:
		return fate{loseReply: true}
	case ToLoseRequest:
		return fate{loseRequest: true}
	}
	return fate{decline: happens(f.Decline), loseReply: happens(f.LoseReply)}
}

// happens is true for that share of its calls.
func happens(share float64) bool { return rand.Float64() < share } //nolint:gosec // nobody is to be kept from guessing

// Change is Faults as JSON. What is absent stays as it is.
type Change struct {
	// Latency is a duration such as "200ms".
	Latency   *string  `json:"latency,omitempty"`
	Decline   *float64 `json:"decline,omitempty"`
	LoseReply *float64 `json:"lose_reply,omitempty"`
}

// change returns f with what c names, or [lock.ErrInvalid].
func (f Faults) change(c Change) (Faults, error) {
	if c.Latency != nil {
		latency, err := time.ParseDuration(*c.Latency)
		if err != nil {
			return f, lock.Invalid("latency", "must be a duration such as 200ms")
		}
		f.Latency = latency
	}
	if c.Decline != nil {
		f.Decline = *c.Decline
	}
	if c.LoseReply != nil {
		f.LoseReply = *c.LoseReply
	}
	return f, f.Check()
}

// shown is f as a Change that names everything.
func (f Faults) shown() Change {
	latency := f.Latency.String()
	return Change{Latency: &latency, Decline: &f.Decline, LoseReply: &f.LoseReply}
}
