package reference

import (
	"maps"
	"time"

	"github.com/fencelock/fencelock/core/lock"
	"github.com/fencelock/fencelock/core/port"
)

// pulse is a live session's sign of life: what it is guaranteed.
type pulse struct {
	deadline time.Time
	ttl      time.Duration
}

// open starts a session (clause SESS-01).
func (w *World) open(now time.Time, req port.OpenRequest) lock.Session {
	w.serial++
	s := &session{
		Session: lock.Session{
			ID: lock.NewSessionID(), Owner: req.Owner, TTL: req.TTL,
			CreatedAt: now.Round(0), Metadata: maps.Clone(req.Metadata),
		},
		serial:   w.serial,
		deadline: now.Add(req.TTL),
	}
	w.sessions[s.ID] = s
	w.expect(s.deadline)
	return s.view()
}

// heartbeat renews a live session for its TTL (clauses SESS-02, SESS-03).
func (w *World) heartbeat(now time.Time, id lock.SessionID) (pulse, error) {
	s, alive := w.sessions[id]
	if !alive {
		return pulse{}, lock.ErrSessionDead
	}
	s.deadline = now.Add(s.TTL)
	return pulse{deadline: s.deadline, ttl: s.TTL}, nil
}

// close ends a session and counts its grants (clause SESS-06).
func (w *World) close(id lock.SessionID) (int, error) {
	s, alive := w.sessions[id]
	if !alive {
		return 0, nil
	}
	n := len(w.held(id))
	w.steps.endSession(s)
	return n, nil
}

// locksOf lists what a live session holds (clause SESS-07).
func (w *World) locksOf(now time.Time, id lock.SessionID) ([]lock.Grant, error) {
	if _, alive := w.sessions[id]; !alive {
		return nil, lock.ErrSessionDead
	}
	var grants []lock.Grant
	for _, g := range w.held(id) {
		grants = append(grants, g.view(now))
	}
	return grants, nil
}

// view is what a caller may see of a session.
func (s *session) view() lock.Session {
	v := s.Session
	v.Metadata = maps.Clone(s.Metadata)
	return v
}
