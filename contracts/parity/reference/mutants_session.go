package reference

import (
	"fmt"
	"time"

	"github.com/fencelock/fencelock/core/lock"
	"github.com/fencelock/fencelock/core/port"
)

func sessionMutants() []Mutant {
	return []Mutant{
		{"open answers another ttl than it grants", "SESS-01", func(w *World) {
			right := w.steps.open
			w.steps.open = func(now time.Time, req port.OpenRequest) lock.Session {
				s := right(now, req)
				s.TTL += time.Second
				return s
			}
		}},
		{"session ids count upwards", "SESS-01", predictableIDs},
		{"death before the guarantee is over", "SESS-02", func(w *World) {
			deadlines(w, func(s *session, now time.Time) time.Time { return now.Add(s.TTL / 2) })
		}},
		{"guarantee beyond what the store gives", "SESS-02", func(w *World) {
			right := w.steps.heartbeat
			w.steps.heartbeat = func(now time.Time, id lock.SessionID) (pulse, error) {
				p, err := right(now, id)
				p.deadline = p.deadline.Add(time.Second)
				return p, err
			}
		}},
		{"ttl ignored", "SESS-02", func(w *World) {
			deadlines(w, func(_ *session, now time.Time) time.Time { return now.Add(lock.MaxTTL) })
		}},
		{"renewal of a dead session", "SESS-03", renewDead},
		{"unknown session is invalid", "SESS-03", func(w *World) {
			right := w.steps.heartbeat
			w.steps.heartbeat = func(now time.Time, id lock.SessionID) (pulse, error) {
				p, err := right(now, id)
				if err != nil {
					err = lock.Invalid("session_id", "no such session")
				}
				return p, err
			}
		}},
		{"a request is looked up for the dead", "SESS-03", func(w *World) {
			right := w.steps.settle
			w.steps.settle = func(
				now time.Time, key lock.Key, session lock.SessionID, id lock.RequestID,
			) (lock.Grant, bool, error) {
				if _, alive := w.sessions[session]; !alive {
					return lock.Grant{}, false, nil
				}
				return right(now, key, session, id)
			}
		}},
		{"silent client kept alive", "SESS-04", func(w *World) {
			w.steps.sessionOver = func(s *session, now time.Time) bool {
				if !now.Before(s.deadline) {
					s.deadline = now.Add(s.TTL)
				}
				return false
			}
		}},
	}
}

func sessionEndMutants() []Mutant {
	return []Mutant{
		{"death frees all locks but one", "SESS-05", func(w *World) {
			right := w.steps.endSession
			w.steps.endSession = func(s *session) {
				held := w.held(s.ID)
				right(s)
				if len(held) > 0 {
					w.grants[held[0].Key] = held[0]
				}
			}
		}},
		{"close counts the session itself", "SESS-06", func(w *World) {
			right := w.steps.close
			w.steps.close = func(id lock.SessionID) (int, error) {
				_, alive := w.sessions[id]
				n, err := right(id)
				if alive {
					n++
				}
				return n, err
			}
		}},
		{"second close is an error", "SESS-06", func(w *World) {
			right := w.steps.close
			w.steps.close = func(id lock.SessionID) (int, error) {
				if _, alive := w.sessions[id]; !alive {
					return 0, lock.ErrSessionDead
				}
				return right(id)
			}
		}},
		{"stale read of a session's locks", "SESS-07", staleLocksOf},
		{"sessions live and die with their server", "SESS-08", func(w *World) {
			right := w.steps.stop
			w.steps.stop = func(c *Client) {
				right(c)
				for _, s := range w.sessions {
					w.steps.endSession(s)
				}
			}
		}},
		{"reply before commit", "SESS-08", func(w *World) {
			right := w.steps.stop
			w.steps.stop = func(c *Client) {
				right(c)
				clear(w.grants) // answered, but never written: gone with the server
			}
		}},
		{"grant to a dead session", "SESS-09", func(w *World) {
			right := w.steps.tryInsert
			w.steps.tryInsert = func(now time.Time, req port.GrantRequest) (port.Attempt, error) {
				_, alive := w.sessions[req.Session]
				if _, held := w.grants[req.Key]; !alive && !held {
					return port.Attempt{Granted: true, Grant: w.insert(now, req).view(now)}, nil
				}
				return right(now, req)
			}
		}},
	}
}

// predictableIDs gives sessions numbers for names.
func predictableIDs(w *World) {
	right := w.steps.open
	w.steps.open = func(now time.Time, req port.OpenRequest) lock.Session {
		s := w.sessions[right(now, req).ID]
		delete(w.sessions, s.ID)
		s.ID, _ = lock.ParseSessionID(fmt.Sprintf("%032x", s.serial))
		w.sessions[s.ID] = s
		return s.view()
	}
}

// deadlines makes the store end sessions at a moment other than the one it answers with.
func deadlines(w *World, end func(s *session, now time.Time) time.Time) {
	open, heartbeat := w.steps.open, w.steps.heartbeat
	w.steps.open = func(now time.Time, req port.OpenRequest) lock.Session {
		v := open(now, req)
		s := w.sessions[v.ID]
		s.deadline = end(s, now)
		w.expect(s.deadline)
		return v
	}
	w.steps.heartbeat = func(now time.Time, id lock.SessionID) (pulse, error) {
		p, err := heartbeat(now, id)
		if s, alive := w.sessions[id]; alive {
			s.deadline = end(s, now)
			w.expect(s.deadline)
		}
		return p, err
	}
}

// renewDead lets a heartbeat bring a dead session back.
func renewDead(w *World) {
	dead := map[lock.SessionID]*session{}
	end, heartbeat := w.steps.endSession, w.steps.heartbeat
	w.steps.endSession = func(s *session) {
		dead[s.ID] = s
		end(s)
	}
	w.steps.heartbeat = func(now time.Time, id lock.SessionID) (pulse, error) {
		if s, known := dead[id]; known {
			w.sessions[id] = s
		}
		p, err := heartbeat(now, id)
		if err == nil {
			w.expect(p.deadline)
		}
		return p, err
	}
}

// staleLocksOf keeps answering with the first answer.
func staleLocksOf(w *World) {
	type answer struct {
		grants []lock.Grant
		err    error
	}
	seen := map[lock.SessionID]answer{}
	right := w.steps.locksOf
	w.steps.locksOf = func(now time.Time, id lock.SessionID) ([]lock.Grant, error) {
		if _, known := seen[id]; !known {
			grants, err := right(now, id)
			seen[id] = answer{grants, err}
		}
		return seen[id].grants, seen[id].err
	}
}
