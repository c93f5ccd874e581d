package reference

import (
	"strings"
	"time"

	"github.com/fencelock/fencelock/core/lock"
	"github.com/fencelock/fencelock/core/port"
)

// whenHeld is the shape of most bugs of an acquire: another answer while a grant stands.
func whenHeld(
	applies func(g *grant, req port.GrantRequest) bool,
	wrong func(w *World, now time.Time, g *grant, req port.GrantRequest) port.Attempt,
) func(w *World) {
	return func(w *World) {
		right := w.steps.tryInsert
		w.steps.tryInsert = func(now time.Time, req port.GrantRequest) (port.Attempt, error) {
			g, held := w.grants[req.Key]
			_, alive := w.sessions[req.Session]
			if held && alive && applies(g, req) {
				return wrong(w, now, g, req), nil
			}
			return right(now, req)
		}
	}
}

// whenOver makes a release answer for a grant that stands but that ref does not name.
func whenOver(applies func(g *grant, ref port.GrantRef) bool) func(w *World) {
	return func(w *World) {
		right := w.steps.release
		w.steps.release = func(ref port.GrantRef) bool {
			if g, held := w.grants[ref.Key]; held && applies(g, ref) {
				ref.Session, ref.Token = g.Session, g.Token
			}
			return right(ref)
		}
	}
}

func grantAnew(w *World, now time.Time, _ *grant, req port.GrantRequest) port.Attempt {
	return port.Attempt{Granted: true, Grant: w.insert(now, req).view(now)}
}

func grantAgain(_ *World, now time.Time, g *grant, _ port.GrantRequest) port.Attempt {
	return port.Attempt{Granted: true, Grant: g.view(now)}
}

func refuse(w *World, now time.Time, g *grant, _ port.GrantRequest) port.Attempt {
	return port.Attempt{Holder: w.holder(g, now)}
}

func otherRequest(g *grant, req port.GrantRequest) bool {
	return g.Session == req.Session && g.RequestID != req.RequestID
}

func grantMutants() []Mutant {
	return []Mutant{
		{"double grant", "LOCK-01", whenHeld(
			func(g *grant, req port.GrantRequest) bool { return g.Session != req.Session }, grantAnew)},
		{"acknowledged, then lost", "LOCK-01", func(w *World) {
			right := w.steps.tryInsert
			w.steps.tryInsert = func(now time.Time, req port.GrantRequest) (port.Attempt, error) {
				a, err := right(now, req)
				if a.Granted {
					delete(w.grants, req.Key)
				}
				return a, err
			}
		}},
		{"token not bumped on a new grant", "LOCK-02", func(w *World) {
			given := map[lock.Key]lock.Token{}
			w.steps.next = func(key lock.Key) lock.Token {
				if given[key] == 0 {
					given[key] = w.next(key)
				}
				return given[key]
			}
		}},
		{"token reused after a session's death", "LOCK-02", tokenReuse},
		{"extend changes the token", "LOCK-03", func(w *World) {
			right := w.steps.extend
			w.steps.extend = func(now time.Time, ref port.GrantRef, lease time.Duration) (lock.Grant, error) {
				view, err := right(now, ref, lease)
				if err == nil {
					view.Token = w.steps.next(ref.Key)
					w.grants[ref.Key].Token = view.Token
				}
				return view, err
			}
		}},
		{"retry without request id", "LOCK-04", whenHeld(
			func(*grant, port.GrantRequest) bool { return true }, refuse)},
		{"re-entrant grant", "LOCK-04", whenHeld(otherRequest, grantAgain)},
		{"re-grant while held", "LOCK-04", whenHeld(otherRequest, grantAnew)},
		{"request ids are shared by sessions", "LOCK-04", whenHeld(
			func(g *grant, req port.GrantRequest) bool { return g.RequestID == req.RequestID }, grantAgain)},
		{"held does not say by whom", "LOCK-05", func(w *World) {
			right := w.steps.tryInsert
			w.steps.tryInsert = func(now time.Time, req port.GrantRequest) (port.Attempt, error) {
				a, err := right(now, req)
				a.Holder = lock.Holder{}
				return a, err
			}
		}},
	}
}

func releaseMutants() []Mutant {
	return []Mutant{
		{"stale release", "LOCK-06", whenOver(
			func(g *grant, ref port.GrantRef) bool { return g.Session == ref.Session })},
		{"release by anyone", "LOCK-06", whenOver(
			func(g *grant, ref port.GrantRef) bool { return g.Token == ref.Token })},
		{"second release answers true", "LOCK-06", func(w *World) {
			right := w.steps.release
			w.steps.release = func(ref port.GrantRef) bool {
				_, held := w.grants[ref.Key]
				return right(ref) || !held
			}
		}},
		{"read sees no holder", "LOCK-10", func(w *World) {
			w.steps.read = func(_ time.Time, key lock.Key) lock.Info {
				return lock.Info{Key: key, Floor: w.floors[key]}
			}
		}},
		{"a key blocks the keys below it", "LOCK-11", keysByPrefix},
		{"abandon withdraws another request", "LOCK-12", func(w *World) {
			right := w.steps.abandon
			w.steps.abandon = func(key lock.Key, session lock.SessionID, id lock.RequestID) bool {
				if g, held := w.grants[key]; held && g.Session == session {
					id = g.RequestID
				}
				return right(key, session, id)
			}
		}},
		{"abandon withdraws nothing", "LOCK-12", func(w *World) {
			w.steps.abandon = func(lock.Key, lock.SessionID, lock.RequestID) bool { return false }
		}},
		{"a session's list does not name requests", "LOCK-13", func(w *World) {
			right := w.steps.locksOf
			w.steps.locksOf = func(now time.Time, id lock.SessionID) ([]lock.Grant, error) {
				grants, err := right(now, id)
				for i := range grants {
					grants[i].RequestID = ""
				}
				return grants, err
			}
		}},
	}
}

// tokenReuse forgets tokens together with the session that had them.
func tokenReuse(w *World) {
	forgotten := map[lock.Key]lock.Token{}
	next, end := w.steps.next, w.steps.endSession
	w.steps.next = func(key lock.Key) lock.Token {
		if token := forgotten[key]; token != 0 {
			return token
		}
		return next(key)
	}
	w.steps.endSession = func(s *session) {
		for _, g := range w.held(s.ID) {
			forgotten[g.Key] = g.Token
		}
		end(s)
	}
}

// keysByPrefix treats a key as the parent of those that start with it.
func keysByPrefix(w *World) {
	right := w.steps.tryInsert
	w.steps.tryInsert = func(now time.Time, req port.GrantRequest) (port.Attempt, error) {
		for key, g := range w.grants {
			if key.Namespace() == req.Key.Namespace() && strings.HasPrefix(req.Key.Name(), key.Name()+"/") {
				return refuse(w, now, g, req), nil
			}
		}
		return right(now, req)
	}
}
