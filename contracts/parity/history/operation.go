package history

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/fencelock/fencelock/core/lock"
)

// Forever is the return of a call whose answer was lost.
const Forever = time.Duration(math.MaxInt64)

// Kind is what was called.
type Kind string

// The calls that are recorded, by the ports' names.
const (
	Open      Kind = "open"
	Heartbeat Kind = "heartbeat"
	Close     Kind = "close"
	LocksOf   Kind = "locks-of"
	Acquire   Kind = "acquire"
	Extend    Kind = "extend"
	Release   Kind = "release"
	Revoke    Kind = "revoke"
	Handoff   Kind = "handoff"
	Settle    Kind = "settle"
	Abandon   Kind = "abandon"
)

// Status is how a call ended.
type Status string

const (
	// OK means: done; for Settle also "there is none".
	OK Status = "ok"
	// Held means: an acquire met another grant.
	Held Status = "held"
	// Lost means: the grant that was named does not stand.
	Lost Status = "lost"
	// Gone means: the session is dead.
	Gone Status = "gone"
	// Unknown means: the answer was lost; Return is [Forever].
	Unknown Status = "unknown"
	// Void means: surely not carried out.
	Void Status = "void"
)

// Operation is one call and its answer. Call is taken before it was sent and
// Return after the answer came, on the recorder's clock.
type Operation struct {
	// Process numbers callers; it changes after a lost answer.
	Process      int
	Kind         Kind
	Status       Status
	Call, Return time.Duration

	Key     lock.Key
	Session lock.SessionID // for a handoff, of the grantee
	Request lock.RequestID
	From    lock.SessionID // of a handoff: whose grant ends
	// Token names a grant: to release, extend, hand off, or (0: any) revoke.
	Token lock.Token
	Lease time.Duration

	// Answer is the token of the grant that was made, found or revoked; 0 for none.
	Answer lock.Token
	// Floor and Deposed are of a revocation.
	Floor   lock.Token
	Deposed lock.SessionID
	// Remaining is what an open or a heartbeat guaranteed.
	Remaining time.Duration
	// Ended is how many grants a close ended.
	Ended int
	// Locks is what a session was said to hold.
	Locks []lock.Grant
}

// String shows an operation on one line.
func (o Operation) String() string {
	end := "..."
	if o.Return != Forever {
		end = o.Return.String()
	}
	var text strings.Builder
	fmt.Fprintf(&text, "[%v, %s] p%d %s", o.Call, end, o.Process, o.Kind)
	for _, part := range []struct {
		name  string
		value any
		set   bool
	}{
		{"key", o.Key, !o.Key.IsZero()},
		{"session", o.Session, !o.Session.IsZero()}, {"from", o.From, !o.From.IsZero()},
		{"request", o.Request, o.Request != ""}, {"token", o.Token, o.Token != 0}, {"lease", o.Lease, o.Lease != 0},
	} {
		if part.set {
			fmt.Fprintf(&text, " %s=%v", part.name, part.value)
		}
	}
	fmt.Fprintf(&text, " -> %s", o.Status)
	if o.Answer != 0 {
		fmt.Fprintf(&text, " token=%d", o.Answer)
	}
	return text.String()
}

// writes reports whether the call may change a key's state. Lost answers of
// other calls are dropped.
func (k Kind) writes() bool {
	return slices.Contains([]Kind{Acquire, Release, Revoke, Handoff, Abandon, Close}, k)
}
