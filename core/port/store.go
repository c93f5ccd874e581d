package port

import (
	"context"
	"time"

	"github.com/fencelock/fencelock/core/lock"
)

// GrantRequest asks for one grant.
type GrantRequest struct {
	Key       lock.Key
	Session   lock.SessionID
	RequestID lock.RequestID
	// Lease caps the grant's life, in whole seconds; 0 binds it to the session alone.
	Lease    time.Duration
	Metadata map[string]string
}

// Attempt is the outcome of a try: granted with Grant, or held with Holder.
type Attempt struct {
	Granted bool
	Grant   lock.Grant
	Holder  lock.Holder
}

// LockStore keeps grants.
type LockStore interface {
	// TryInsert grants the key if it is free and the session is alive, both in the
	// store's own atomic step. The same session, key and request id as the live
	// grant returns that grant again; the same session with another request id
	// is held (clause LOCK-04). A dead session is [lock.ErrSessionDead].
	TryInsert(ctx context.Context, req GrantRequest) (Attempt, error)
	// Extend moves the end of a leased grant to at least lease from now and
	// never earlier (lease 0: the grant's own lease again); a grant without a lease is
	// returned unchanged. A grant that is over is [lock.ErrLost]. The token never changes.
	Extend(ctx context.Context, key lock.Key, session lock.SessionID, token lock.Token, lease time.Duration) (lock.Grant, error)
	// DeleteIfOwner ends the grant if key, session and token match the live grant,
	// compared in the store, atomically. Anything else returns false and
	// changes nothing; that is never an error.
	DeleteIfOwner(ctx context.Context, key lock.Key, session lock.SessionID, token lock.Token) (bool, error)
	// Read returns a plausible picture, never usable for a decision.
	Read(ctx context.Context, key lock.Key) (lock.Info, error)
	// Revoke ends the grant, raises the floor and appends the audit record in one
	// atomic step. A free key, or an expected token that is not the live one,
	// is [lock.ErrLost].
	Revoke(ctx context.Context, req RevokeRequest) (lock.Revocation, error)
	// ReapExpired tidies what is already over and returns how much. Expiry is
	// true before it runs. A store that tidies itself returns 0.
	ReapExpired(ctx context.Context) (int, error)
	// BackendID is "etcd" or "postgres", for the metric label only.
	BackendID() string
}

// RevokeRequest is an operator's act.
type RevokeRequest struct {
	Key      lock.Key
	Operator string
	Reason   string
	// Expected makes it a compare-and-revoke; 0 revokes whatever grant is there.
	Expected lock.Token
}

// OpenRequest asks for a session.
type OpenRequest struct {
	Owner lock.Owner
	// TTL is in whole seconds, within [lock.MinTTL, lock.MaxTTL].
	TTL      time.Duration
	Metadata map[string]string
}

// Vitals is the answer about a live session.
type Vitals struct {
	// Remaining is what the store has guaranteed, counted from the return of the call.
	Remaining time.Duration
	// TTL is the session's time to live.
	TTL time.Duration
}

// SessionRegistry keeps sessions.
type SessionRegistry interface {
	// OpenSession creates a session under a fresh id.
	OpenSession(ctx context.Context, req OpenRequest) (lock.Session, error)
	// Heartbeat renews the session for its TTL and returns what the store has
	// guaranteed. [lock.ErrSessionDead] is terminal and stable.
	Heartbeat(ctx context.Context, session lock.SessionID) (Vitals, error)
	// CloseSession ends the session and all its grants in one step and returns
	// how many grants there were. A session that is over returns 0 and no error.
	CloseSession(ctx context.Context, session lock.SessionID) (int, error)
	// LocksOf returns the live grants of the session, read from the store, in
	// key order. A dead session is [lock.ErrSessionDead].
	LocksOf(ctx context.Context, session lock.SessionID) ([]lock.Grant, error)
}

// Handover moves or withdraws grants.
type Handover interface {
	// Handoff ends the grant (from.Key, from.Session, from.Token) and grants its key to
	// the request to, in one atomic step, with a higher token. to.Key equals
	// from.Key. It is [lock.ErrLost] if the first is over and
	// [lock.ErrSessionDead] if the second session is; then nothing changed.
	Handoff(ctx context.Context, from GrantRef, to GrantRequest) (lock.Grant, error)
	// Settle returns the live grant that (key, session, request id) names, by a
	// linearizable read; ok is false if there is none. It never inserts. A dead session
	// is [lock.ErrSessionDead].
	Settle(ctx context.Context, key lock.Key, session lock.SessionID, id lock.RequestID) (grant lock.Grant, ok bool, err error)
	// Abandon ends the live grant that (key, session, request id) names and
	// reports whether there was one.
	Abandon(ctx context.Context, key lock.Key, session lock.SessionID, id lock.RequestID) (bool, error)
}

// GrantRef names one grant.
type GrantRef struct {
	Key     lock.Key
	Session lock.SessionID
	Token   lock.Token
}
