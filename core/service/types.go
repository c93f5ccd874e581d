package service

import (
	"time"

	"github.com/fencelock/fencelock/core/lock"
	"github.com/fencelock/fencelock/core/port"
)

// Config bounds the service. The zero value of each field means its default.
type Config struct {
	// HandoffLimit is how many times in a row a grant may pass between local
	// waiters before other servers get their chance. Default 32; negative turns handoff off.
	HandoffLimit int
	// MaxWaitersPerKey and MaxWaiters bound the queue of this server. Defaults 1,000 and 10,000.
	MaxWaitersPerKey int
	MaxWaiters       int
	// MaxWait caps the wait of an acquire. Default 1h.
	MaxWait time.Duration
	// FallbackPoll is the upper end of the jittered poll of a waiter that no wake reaches. Default 5s.
	FallbackPoll time.Duration
	// StoreTimeout bounds one call of the store. Default 5s.
	StoreTimeout time.Duration
	// HeartbeatStale is how old a received heartbeat may be before it is dropped. Default 1s.
	HeartbeatStale time.Duration
	// SessionTTL is the TTL where the opener names none. Default 15s.
	SessionTTL time.Duration
}

// AcquireRequest is one acquire.
type AcquireRequest struct {
	port.GrantRequest
	// Wait is how long to stand in line; 0 means not at all.
	Wait time.Duration
}

// AcquireResult is granted or held.
type AcquireResult struct {
	port.Attempt
	// Waited is how long the service held the call before the store call that granted began.
	Waited time.Duration
	// Waiters is how many wait for the key on this server, if held.
	Waiters int
}

// HeartbeatRequest is one heartbeat.
type HeartbeatRequest struct {
	Session lock.SessionID
	// ReceivedAt is the clock's reading when the request arrived; 0 means now.
	ReceivedAt time.Duration
	// Digest, where Check is set, is [lock.Digest] over what the client believes it holds.
	Digest uint64
	Check  bool
}

// HeartbeatResult is the answer for a live session.
type HeartbeatResult struct {
	port.Vitals
	// Differs says that Held, the store's view, is not what the digest said.
	Differs bool
	Held    []lock.Grant
}

// Inspection is a plausible picture of one key.
type Inspection struct {
	lock.Info
	// Waiters is how many wait for the key on this server.
	Waiters int
}

// SessionEventKind says what a watcher of a session learns.
type SessionEventKind int

const (
	// GrantLost says that a grant ended other than by its holder; Key, Token and Reason are set.
	GrantLost SessionEventKind = iota + 1
	// SessionDead says that the session is over. The last event of a watch.
	SessionDead
	// Draining says that this server is about to stop.
	Draining
	// HeldNow says that events may have been missed; Held is the store's view.
	HeldNow
)

// SessionEvent is one piece of news for the watchers of a session.
type SessionEvent struct {
	Kind    SessionEventKind
	Session lock.SessionID
	Key     lock.Key
	Token   lock.Token
	// Reason is port.GrantRevoked or port.GrantLapsed.
	Reason port.FeedKind
	Held   []lock.Grant
}

// Status is the state of this server.
type Status struct {
	Draining bool
	Waiters  int
}
