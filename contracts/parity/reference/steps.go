package reference

import (
	"time"

	"github.com/fencelock/fencelock/core/lock"
	"github.com/fencelock/fencelock/core/port"
)

// steps are the world's transitions and the small decisions inside them. All
// run under the world's mutex, after [World.pass]. A mutant replaces some.
type steps struct {
	tryInsert func(now time.Time, req port.GrantRequest) (port.Attempt, error)
	extend    func(now time.Time, ref port.GrantRef, lease time.Duration) (lock.Grant, error)
	release   func(ref port.GrantRef) bool
	read      func(now time.Time, key lock.Key) lock.Info
	revoke    func(now time.Time, req port.RevokeRequest) (lock.Revocation, error)

	open      func(now time.Time, req port.OpenRequest) lock.Session
	heartbeat func(now time.Time, id lock.SessionID) (pulse, error)
	close     func(id lock.SessionID) (int, error)
	locksOf   func(now time.Time, id lock.SessionID) ([]lock.Grant, error)

	handoff func(now time.Time, from port.GrantRef, to port.GrantRequest) (lock.Grant, error)
	settle  func(now time.Time, key lock.Key, session lock.SessionID, id lock.RequestID) (grant lock.Grant, ok bool, err error)
	abandon func(key lock.Key, session lock.SessionID, id lock.RequestID) bool

	raiseFloor func(now time.Time, req port.FloorRequest) port.FloorRaised

	listGrants      func(now time.Time, namespace, prefix string) []lock.Grant
	listRevocations func(namespace string) []lock.Revocation

	next        func(key lock.Key) lock.Token
	sessionOver func(s *session, now time.Time) bool
	leaseOver   func(g *grant, now time.Time) bool
	endSession  func(s *session)
	wake        func(key lock.Key)
	tell        func(e port.FeedEvent)
	register    func(c *Client, key lock.Key) *wake
	cancel      func(r *wake)
	heal        func(c *Client)
	stop        func(c *Client)
	backend     func(c *Client) port.Backend

	unreachable func() error
	answerLost  func(cause error) error
}

// correct are the right steps.
func correct(w *World) steps {
	return steps{
		tryInsert: w.tryInsert, extend: w.extend, release: w.release, read: w.read, revoke: w.revoke,
		open: w.open, heartbeat: w.heartbeat, close: w.close, locksOf: w.locksOf,
		handoff: w.handoff, settle: w.settle, abandon: w.abandon,
		raiseFloor: w.raiseFloor,
		listGrants: w.listGrants, listRevocations: w.listRevocations,
		next:        w.next,
		sessionOver: func(s *session, now time.Time) bool { return !now.Before(s.deadline) },
		leaseOver:   func(g *grant, now time.Time) bool { return !g.end.IsZero() && !now.Before(g.end) },
		endSession:  w.endSession,
		wake:        w.wake, tell: w.tell, register: w.register, cancel: w.cancel,
		heal: (*Client).heal, stop: (*Client).stop, backend: (*Client).backend,
		unreachable: func() error { return lock.Contention("the store cannot be reached", false, nil) },
		answerLost:  func(cause error) error { return lock.Contention("the answer was lost", true, cause) },
	}
}
