package history

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fencelock/fencelock/core/lock"
	"github.com/fencelock/fencelock/core/port"
)

// Recorder notes calls. It is safe for concurrent use.
type Recorder struct {
	start     time.Time
	processes atomic.Int64

	mu         sync.Mutex
	operations []Operation
}

// NewRecorder returns a recorder with an empty history; its clock starts now.
func NewRecorder() *Recorder { return &Recorder{start: time.Now()} }

// Operations returns the history so far. Writes that have not returned yet
// are in it as unknown.
func (r *Recorder) Operations() []Operation {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.operations)
}

// Wrap returns the backend with its calls recorded. Wrap once per caller, so
// that a history shows who did what.
func (r *Recorder) Wrap(b port.Backend) port.Backend {
	c := &caller{recorder: r}
	c.process.Store(r.processes.Add(1))
	b.Locks = locks{b.Locks, c}
	b.Sessions = sessions{b.Sessions, c}
	b.Handover = handover{b.Handover, c}
	return b
}

// Kill records that the session is ended out of band by kill.
func (r *Recorder) Kill(session lock.SessionID, kill func()) {
	c := &caller{recorder: r}
	_, _ = record(c, Operation{Kind: Close, Session: session}, func() (struct{}, error) {
		kill()
		return struct{}{}, nil
	}, nil)
}

// caller is one wrapped backend.
type caller struct {
	recorder *Recorder
	process  atomic.Int64
}

// record notes a call before it is made and its answer afterwards.
func record[A any](c *caller, o Operation, call func() (A, error), note func(o *Operation, answer A)) (A, error) {
	r := c.recorder
	o.Process, o.Status, o.Return = int(c.process.Load()), Unknown, Forever
	r.mu.Lock()
	index := len(r.operations)
	o.Call = time.Since(r.start)
	r.operations = append(r.operations, o)
	r.mu.Unlock()

	answer, err := call()

	r.mu.Lock()
	defer r.mu.Unlock()
	if o.Status = status(err); o.Status == Unknown {
		c.process.Store(r.processes.Add(1))
		return answer, err
	}
	o.Return = time.Since(r.start)
	if note != nil && err == nil {
		note(&o, answer)
	}
	r.operations[index] = o
	return answer, err
}

// status classifies an error of the closed set.
func status(err error) Status {
	switch {
	case err == nil:
		return OK
	case lock.IsAmbiguous(err):
		return Unknown
	case lock.CodeOf(err) == lock.CodeLost:
		return Lost
	case lock.CodeOf(err) == lock.CodeSessionDead:
		return Gone
	default:
		return Void
	}
}

// locks records a LockStore.
type locks struct {
	port.LockStore

	caller *caller
}

// TryInsert implements [port.LockStore].
func (l locks) TryInsert(ctx context.Context, req port.GrantRequest) (port.Attempt, error) {
	o := Operation{Kind: Acquire, Key: req.Key, Session: req.Session, Request: req.RequestID, Lease: req.Lease}
	return record(l.caller, o, func() (port.Attempt, error) {
		return l.LockStore.TryInsert(ctx, req)
	}, func(o *Operation, a port.Attempt) {
		if o.Answer = a.Grant.Token; !a.Granted {
			o.Status = Held
		}
	})
}

// Extend implements [port.LockStore].
func (l locks) Extend(
	ctx context.Context, key lock.Key, session lock.SessionID, token lock.Token, lease time.Duration,
) (lock.Grant, error) {
	o := Operation{Kind: Extend, Key: key, Session: session, Token: token, Lease: lease}
	return record(l.caller, o, func() (lock.Grant, error) {
		return l.LockStore.Extend(ctx, key, session, token, lease)
	}, func(o *Operation, g lock.Grant) { o.Answer = g.Token })
}

// DeleteIfOwner implements [port.LockStore].
func (l locks) DeleteIfOwner(
	ctx context.Context, key lock.Key, session lock.SessionID, token lock.Token,
) (bool, error) {
	o := Operation{Kind: Release, Key: key, Session: session, Token: token}
	return record(l.caller, o, func() (bool, error) {
		return l.LockStore.DeleteIfOwner(ctx, key, session, token)
	}, lostUnless)
}

// Revoke implements [port.LockStore].
func (l locks) Revoke(ctx context.Context, req port.RevokeRequest) (lock.Revocation, error) {
	o := Operation{Kind: Revoke, Key: req.Key, Token: req.Expected}
	return record(l.caller, o, func() (lock.Revocation, error) {
		return l.LockStore.Revoke(ctx, req)
	}, func(o *Operation, r lock.Revocation) {
		o.Answer, o.Deposed, o.Floor = r.PreviousToken, r.PreviousSession, r.Floor
	})
}

// lostUnless notes the answer of a call that says false where nothing matched.
func lostUnless(o *Operation, done bool) {
	if !done {
		o.Status = Lost
	}
}

// sessions records a SessionRegistry.
type sessions struct {
	port.SessionRegistry

	caller *caller
}

// OpenSession implements [port.SessionRegistry].
func (s sessions) OpenSession(ctx context.Context, req port.OpenRequest) (lock.Session, error) {
	return record(s.caller, Operation{Kind: Open}, func() (lock.Session, error) {
		return s.SessionRegistry.OpenSession(ctx, req)
	}, func(o *Operation, opened lock.Session) { o.Session, o.Remaining = opened.ID, opened.TTL })
}

// Heartbeat implements [port.SessionRegistry].
func (s sessions) Heartbeat(ctx context.Context, session lock.SessionID) (port.Vitals, error) {
	return record(s.caller, Operation{Kind: Heartbeat, Session: session}, func() (port.Vitals, error) {
		return s.SessionRegistry.Heartbeat(ctx, session)
	}, func(o *Operation, v port.Vitals) { o.Remaining = v.Remaining })
}

// CloseSession implements [port.SessionRegistry].
func (s sessions) CloseSession(ctx context.Context, session lock.SessionID) (int, error) {
	return record(s.caller, Operation{Kind: Close, Session: session}, func() (int, error) {
		return s.SessionRegistry.CloseSession(ctx, session)
	}, func(o *Operation, n int) { o.Ended = n })
}

// LocksOf implements [port.SessionRegistry].
func (s sessions) LocksOf(ctx context.Context, session lock.SessionID) ([]lock.Grant, error) {
	return record(s.caller, Operation{Kind: LocksOf, Session: session}, func() ([]lock.Grant, error) {
		return s.SessionRegistry.LocksOf(ctx, session)
	}, func(o *Operation, grants []lock.Grant) { o.Locks = slices.Clone(grants) })
}

// handover records a Handover.
type handover struct {
	port.Handover

	caller *caller
}

// Handoff implements [port.Handover].
func (h handover) Handoff(ctx context.Context, from port.GrantRef, to port.GrantRequest) (lock.Grant, error) {
	o := Operation{
		Kind: Handoff, Key: from.Key, From: from.Session, Token: from.Token,
		Session: to.Session, Request: to.RequestID, Lease: to.Lease,
	}
	return record(h.caller, o, func() (lock.Grant, error) {
		return h.Handover.Handoff(ctx, from, to)
	}, func(o *Operation, g lock.Grant) { o.Answer = g.Token })
}

// Settle implements [port.Handover].
func (h handover) Settle(
	ctx context.Context, key lock.Key, session lock.SessionID, id lock.RequestID,
) (grant lock.Grant, ok bool, err error) {
	o := Operation{Kind: Settle, Key: key, Session: session, Request: id}
	grant, err = record(h.caller, o, func() (g lock.Grant, err error) {
		g, ok, err = h.Handover.Settle(ctx, key, session, id)
		return g, err
	}, func(o *Operation, g lock.Grant) {
		if ok {
			o.Answer = g.Token
		}
	})
	return grant, ok, err
}

// Abandon implements [port.Handover].
func (h handover) Abandon(
	ctx context.Context, key lock.Key, session lock.SessionID, id lock.RequestID,
) (bool, error) {
	o := Operation{Kind: Abandon, Key: key, Session: session, Request: id}
	return record(h.caller, o, func() (bool, error) {
		return h.Handover.Abandon(ctx, key, session, id)
	}, lostUnless)
}
