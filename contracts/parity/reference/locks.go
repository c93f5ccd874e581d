package reference

import (
	"fmt"
	"maps"
	"time"

	"github.com/fencelock/fencelock/core/lock"
	"github.com/fencelock/fencelock/core/port"
)

// tryInsert grants a free key to a live session (clauses LOCK-01, LOCK-04, SESS-09).
func (w *World) tryInsert(now time.Time, req port.GrantRequest) (port.Attempt, error) {
	if _, alive := w.sessions[req.Session]; !alive {
		return port.Attempt{}, lock.ErrSessionDead
	}
	g, held := w.grants[req.Key]
	switch {
	case !held:
		g = w.insert(now, req)
	case g.Session != req.Session || g.RequestID != req.RequestID:
		return port.Attempt{Holder: w.holder(g, now)}, nil
	}
	return port.Attempt{Granted: true, Grant: g.view(now)}, nil
}

// insert makes a new grant of the key, whatever was there.
func (w *World) insert(now time.Time, req port.GrantRequest) *grant {
	g := &grant{Grant: lock.Grant{
		Key: req.Key, Session: req.Session, RequestID: req.RequestID,
		Token: w.steps.next(req.Key), AcquiredAt: now.Round(0),
		Lease: req.Lease, Metadata: maps.Clone(req.Metadata),
	}}
	if s, alive := w.sessions[req.Session]; alive {
		g.Owner = s.Owner
	}
	if req.Lease > 0 {
		g.end = now.Add(req.Lease)
		w.expect(g.end)
	}
	w.grants[req.Key] = g
	return g
}

// holder describes who stands in the way.
func (w *World) holder(g *grant, now time.Time) lock.Holder {
	h := lock.Holder{Owner: g.Owner, Session: g.Session, Token: g.Token, AcquiredAt: g.AcquiredAt}
	if s, alive := w.sessions[g.Session]; alive {
		h.FreeWithin = s.deadline.Sub(now)
	}
	if !g.end.IsZero() {
		h.FreeWithin = min(h.FreeWithin, g.end.Sub(now))
	}
	return h
}

// find returns the live grant that ref names.
func (w *World) find(ref port.GrantRef) (*grant, bool) {
	g, held := w.grants[ref.Key]
	if !held || g.Session != ref.Session || g.Token != ref.Token {
		return nil, false
	}
	return g, true
}

// extend moves the end of a leased grant, only ever later (clauses LOCK-03, LOCK-07).
func (w *World) extend(now time.Time, ref port.GrantRef, lease time.Duration) (lock.Grant, error) {
	if _, alive := w.sessions[ref.Session]; !alive {
		return lock.Grant{}, lock.ErrSessionDead
	}
	g, live := w.find(ref)
	if !live {
		return lock.Grant{}, lock.ErrLost
	}
	if lease == 0 {
		lease = g.Lease
	}
	if end := now.Add(lease); g.Lease > 0 && end.After(g.end) {
		g.end = end
	}
	return g.view(now), nil
}

// release ends exactly the grant that ref names (clause LOCK-06).
func (w *World) release(ref port.GrantRef) bool {
	_, live := w.find(ref)
	if live {
		w.free(ref.Key)
	}
	return live
}

// free ends the grant of a key and wakes who waits for it (clause WAIT-02).
func (w *World) free(key lock.Key) {
	delete(w.grants, key)
	w.steps.wake(key)
}

// read is the picture of one key (clause LOCK-10).
func (w *World) read(now time.Time, key lock.Key) lock.Info {
	info := lock.Info{Key: key, Floor: w.floors[key]}
	if g, held := w.grants[key]; held {
		info.Held, info.Grant = true, g.view(now)
	}
	return info
}

// revoke ends a grant against its holder's will (clauses REV-01 to REV-04).
func (w *World) revoke(now time.Time, req port.RevokeRequest) (lock.Revocation, error) {
	g, held := w.grants[req.Key]
	if !held || req.Expected != 0 && req.Expected != g.Token {
		return lock.Revocation{}, lock.ErrLost
	}
	return w.condemn(now, g, req.Operator, req.Reason), nil
}

// condemn ends a grant, raises the floor above it, records who did it, and tells.
func (w *World) condemn(now time.Time, g *grant, operator, reason string) lock.Revocation {
	r := w.record(lock.Revocation{
		Key: g.Key, Operator: operator, Reason: reason, At: now.Round(0),
		PreviousOwner: g.Owner, PreviousSession: g.Session, PreviousToken: g.Token, Floor: w.steps.next(g.Key),
	})
	w.floors[g.Key] = r.Floor
	w.free(g.Key)
	w.steps.tell(event(port.GrantRevoked, g))
	return r
}

// record appends an audit record under an id of its own.
func (w *World) record(r lock.Revocation) lock.Revocation {
	w.serial++
	r.ID = fmt.Sprintf("%020d", w.serial)
	w.audit = append(w.audit, r)
	return r
}

// raiseFloor lifts all tokens to come and ends all grants, with one audit record of no key.
func (w *World) raiseFloor(now time.Time, req port.FloorRequest) port.FloorRaised {
	w.token = max(w.token, req.Above)
	raised := port.FloorRaised{EndedGrants: len(w.grants), Floor: w.token, At: now.Round(0)}
	for _, g := range w.grants {
		w.free(g.Key)
		w.steps.tell(event(port.GrantRevoked, g))
	}
	w.record(lock.Revocation{Operator: req.Operator, Reason: req.Reason, At: raised.At, Floor: raised.Floor})
	return raised
}

// handoff ends one grant and starts another in one step (clause LOCK-09). The key was never
// free, so nobody is woken.
func (w *World) handoff(now time.Time, from port.GrantRef, to port.GrantRequest) (lock.Grant, error) {
	if _, live := w.find(from); !live {
		return lock.Grant{}, lock.ErrLost
	}
	if _, alive := w.sessions[to.Session]; !alive {
		return lock.Grant{}, lock.ErrSessionDead
	}
	return w.insert(now, to).view(now), nil
}

// named returns the live grant of a request id.
func (w *World) named(key lock.Key, session lock.SessionID, id lock.RequestID) (*grant, bool) {
	g, held := w.grants[key]
	if !held || g.Session != session || g.RequestID != id {
		return nil, false
	}
	return g, true
}

// settle finds the live grant of a request id (clause SESS-03 if the session is over).
func (w *World) settle(
	now time.Time, key lock.Key, session lock.SessionID, id lock.RequestID,
) (grant lock.Grant, ok bool, err error) {
	if _, alive := w.sessions[session]; !alive {
		return grant, false, lock.ErrSessionDead
	}
	g, live := w.named(key, session, id)
	if !live {
		return grant, false, nil
	}
	return g.view(now), true, nil
}

// abandon ends the live grant of a request id (clause LOCK-12).
func (w *World) abandon(key lock.Key, session lock.SessionID, id lock.RequestID) bool {
	_, live := w.named(key, session, id)
	if live {
		w.free(key)
	}
	return live
}
