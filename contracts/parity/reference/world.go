package reference

import (
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/fencelock/fencelock/core/lock"
	"github.com/fencelock/fencelock/core/port"
)

// World is one store in memory, on the monotonic clock of this process. Get
// clients of it with [World.Client], and [World.Close] it in the end.
type World struct {
	mu    sync.Mutex
	steps steps

	token    lock.Token // the last one given, over all keys
	serial   int64      // numbers sessions and audit records
	sessions map[lock.SessionID]*session
	grants   map[lock.Key]*grant
	floors   map[lock.Key]lock.Token
	audit    []lock.Revocation // oldest first

	wakes         map[*wake]struct{}
	subscriptions map[*subscription]struct{}

	// due is not after the earliest moment at which something ends; zero if nothing can.
	due    time.Time
	alarm  *time.Timer
	closed bool
}

// session is a live session.
type session struct {
	lock.Session

	serial   int64
	deadline time.Time
}

// grant is a live grant.
type grant struct {
	lock.Grant

	end time.Time // of its lease; zero without one
}

// New returns an empty world with the mutants' bugs planted, usually none.
func New(mutants ...Mutant) *World {
	w := &World{
		sessions:      map[lock.SessionID]*session{},
		grants:        map[lock.Key]*grant{},
		floors:        map[lock.Key]lock.Token{},
		wakes:         map[*wake]struct{}{},
		subscriptions: map[*subscription]struct{}{},
	}
	w.steps = correct(w)
	w.alarm = time.AfterFunc(time.Hour, w.ring)
	for _, m := range mutants {
		m.plant(w)
	}
	return w
}

// Close ends the world: its timer stops, subscriptions end, and calls find no store.
func (w *World) Close() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.closed = true
	w.alarm.Stop()
	for s := range w.subscriptions {
		s.end()
	}
}

// KillSession ends a session at once, as if its time had run out. It reports whether it was alive.
func (w *World) KillSession(id lock.SessionID) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.pass(time.Now())
	s, alive := w.sessions[id]
	if alive {
		w.steps.endSession(s)
	}
	return alive
}

// Registrations returns how many wakes are registered.
func (w *World) Registrations() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.wakes)
}

// ring lets time pass when something is due and nobody calls: waiters must
// learn of a death or a lapse without asking.
func (w *World) ring() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.closed {
		w.pass(time.Now())
	}
}

// pass ends everything that is overdue at now. It runs before every step, so
// no step ever sees a session or a grant that should be over.
func (w *World) pass(now time.Time) {
	if w.due.IsZero() || now.Before(w.due) {
		return
	}
	w.due = time.Time{}
	for _, s := range w.sessions {
		if w.steps.sessionOver(s, now) {
			w.steps.endSession(s)
		} else {
			w.expect(s.deadline)
		}
	}
	for key, g := range w.grants {
		switch {
		case w.steps.leaseOver(g, now):
			delete(w.grants, key)
			w.steps.wake(key)
			w.steps.tell(event(port.GrantLapsed, g))
		case !g.end.IsZero():
			w.expect(g.end)
		}
	}
}

// expect makes sure that the world looks again at the moment end.
func (w *World) expect(end time.Time) {
	if w.due.IsZero() || end.Before(w.due) {
		w.due = end
		w.alarm.Reset(max(time.Until(end), time.Millisecond))
	}
}

// held returns the grants of a session in key order.
func (w *World) held(id lock.SessionID) []*grant {
	var held []*grant
	for _, g := range w.grants {
		if g.Session == id {
			held = append(held, g)
		}
	}
	slices.SortFunc(held, func(a, b *grant) int { return strings.Compare(a.Key.String(), b.Key.String()) })
	return held
}

// endSession ends a session and all its grants in one step (clause SESS-05).
func (w *World) endSession(s *session) {
	delete(w.sessions, s.ID)
	for _, g := range w.held(s.ID) {
		delete(w.grants, g.Key)
		w.steps.wake(g.Key)
	}
	w.steps.tell(port.FeedEvent{Kind: port.SessionOver, Session: s.ID})
}

// next draws a token above all earlier ones, of any key (clause LOCK-02).
func (w *World) next(lock.Key) lock.Token {
	w.token++
	return w.token
}

// view is what a caller may see of a grant at an instant.
func (g *grant) view(now time.Time) lock.Grant {
	v := g.Grant
	v.Metadata = maps.Clone(g.Metadata)
	if !g.end.IsZero() {
		v.LeaseRemaining = g.end.Sub(now)
	}
	return v
}

// event tells of the end of a grant.
func event(kind port.FeedKind, g *grant) port.FeedEvent {
	return port.FeedEvent{Kind: kind, Key: g.Key, Session: g.Session, Token: g.Token}
}
