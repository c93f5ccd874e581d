package service

import (
	"sync"
	"time"

	"github.com/fencelock/fencelock/core/lock"
)

const (
	// watchBuffer is how many events the watcher of one session may be behind, and newsBuffer
	// that of many.
	watchBuffer = 16
	newsBuffer  = 64
	// reserved slots of that buffer are for Draining, sent once, and SessionDead. Of one session both
	// fit at any time; of many, a death that finds no room is told later.
	reserved = 2
	// servedFor is how long a session that no longer heartbeats here is remembered:
	// longer than it can live.
	servedFor = lock.MaxTTL + time.Minute
)

// hub knows the sessions that this server serves and those that are watched.
// Nothing in it blocks: a watcher that is behind loses events and is told the store's view later.
type hub struct {
	mu       sync.Mutex
	watchers map[*Watcher]struct{}
	watches  map[lock.SessionID]map[*Watcher]struct{}
	// seen is when each session was last served here.
	seen map[lock.SessionID]time.Duration
	// stale sessions are to be read from the store; later ones after a pause.
	stale, later     map[lock.SessionID]struct{}
	work             chan struct{}
	draining, closed bool
}

// Watcher brings news of any number of sessions through one channel. It costs no goroutine.
type Watcher struct {
	hub    *hub
	events chan SessionEvent
	// single ends the watcher with its session.
	single bool
	// sessions are those watched. Guarded by the hub's mutex.
	sessions map[lock.SessionID]struct{}
}

func newHub() *hub {
	return &hub{
		watchers: map[*Watcher]struct{}{},
		watches:  map[lock.SessionID]map[*Watcher]struct{}{},
		seen:     map[lock.SessionID]time.Duration{},
		stale:    map[lock.SessionID]struct{}{},
		later:    map[lock.SessionID]struct{}{},
		work:     make(chan struct{}, 1),
	}
}

// watch starts a watcher of no session yet.
func (h *hub) watch(buffer int, single bool) *Watcher {
	h.mu.Lock()
	defer h.mu.Unlock()
	w := &Watcher{
		hub:      h,
		events:   make(chan SessionEvent, buffer),
		single:   single,
		sessions: map[lock.SessionID]struct{}{},
	}
	if h.closed {
		close(w.events)
		return w
	}
	h.watchers[w] = struct{}{}
	if h.draining {
		w.events <- SessionEvent{Kind: Draining}
	}
	return w
}

// Events is closed by [Watcher.Close] and when the service closes.
func (w *Watcher) Events() <-chan SessionEvent { return w.events }

// Add watches one more session. Its first news is the store's view. Watching it already
// changes nothing.
func (w *Watcher) Add(session lock.SessionID) {
	h := w.hub
	h.mu.Lock()
	defer h.mu.Unlock()
	_, open := h.watchers[w]
	if _, already := w.sessions[session]; already || !open {
		return
	}
	w.sessions[session] = struct{}{}
	if h.watches[session] == nil {
		h.watches[session] = map[*Watcher]struct{}{}
	}
	h.watches[session][w] = struct{}{}
	h.refresh(session)
}

// Close ends the watcher. It may be called more than once.
func (w *Watcher) Close() {
	w.hub.mu.Lock()
	defer w.hub.mu.Unlock()
	w.hub.end(w)
}

// end closes a watcher, unless that was done.
func (h *hub) end(w *Watcher) {
	if _, open := h.watchers[w]; !open {
		return
	}
	delete(h.watchers, w)
	for session := range w.sessions {
		h.drop(session, w)
	}
	close(w.events)
}

// drop ends the watch of one session.
func (h *hub) drop(session lock.SessionID, w *Watcher) {
	delete(w.sessions, session)
	delete(h.watches[session], w)
	if len(h.watches[session]) == 0 {
		delete(h.watches, session)
		delete(h.stale, session)
		delete(h.later, session)
	}
}

// behind reports whether a watcher has no room for what can be told later.
func (w *Watcher) behind() bool { return len(w.events) >= cap(w.events)-reserved }

// send passes an event to the watchers of its session.
func (h *hub) send(ev SessionEvent) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for w := range h.watches[ev.Session] {
		if w.behind() {
			h.later[ev.Session] = struct{}{}
		} else {
			w.events <- ev
		}
	}
}

// over ends the watches of a session and forgets it. It reports whether this server served it. A watcher
// that has no room goes on watching: the store will be asked again, and say the same.
func (h *hub) over(session lock.SessionID) (served bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for w := range h.watches[session] {
		if !w.single && w.behind() {
			h.later[session] = struct{}{}
			continue
		}
		w.events <- SessionEvent{Kind: SessionDead, Session: session}
		h.drop(session, w)
		if w.single {
			h.end(w)
		}
	}
	_, served = h.seen[session]
	delete(h.seen, session)
	return served
}

// served notes that this server serves the session.
func (h *hub) served(session lock.SessionID, now time.Duration) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.seen[session] = now
}

// serves reports whether this server serves the session.
func (h *hub) serves(session lock.SessionID) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	_, served := h.seen[session]
	return served
}

// forget drops a session that this server is about to close itself.
func (h *hub) forget(session lock.SessionID) (served bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	_, served = h.seen[session]
	delete(h.seen, session)
	return served
}

// sweep forgets sessions whose end this server has missed.
func (h *hub) sweep(now time.Duration) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for session, last := range h.seen {
		if now-last > servedFor {
			delete(h.seen, session)
		}
	}
}

// refreshAll marks all watched sessions as stale.
func (h *hub) refreshAll() {
	h.mu.Lock()
	defer h.mu.Unlock()
	for session := range h.watches {
		h.refresh(session)
	}
}

func (h *hub) refresh(session lock.SessionID) {
	h.stale[session] = struct{}{}
	h.signal()
}

func (h *hub) signal() {
	select {
	case h.work <- struct{}{}:
	default:
	}
}

// next returns a stale session with a watcher that has room for the answer.
func (h *hub) next() (session lock.SessionID, ok bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for session := range h.stale {
		delete(h.stale, session)
		if !h.room(session) {
			h.later[session] = struct{}{}
			continue
		}
		if len(h.stale) > 0 {
			h.signal() // for another worker
		}
		return session, true
	}
	return lock.SessionID{}, false
}

func (h *hub) room(session lock.SessionID) bool {
	for w := range h.watches[session] {
		if !w.behind() {
			return true
		}
	}
	return false
}

// postpone puts a session off that could not be read.
func (h *hub) postpone(session lock.SessionID) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.watches[session] != nil {
		h.later[session] = struct{}{}
	}
}

// retry makes the sessions that were put off stale again.
func (h *hub) retry() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.later) == 0 {
		return
	}
	for session := range h.later {
		h.stale[session] = struct{}{}
	}
	clear(h.later)
	h.signal()
}

// drain tells all watchers that this server is about to stop.
func (h *hub) drain() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.draining {
		return
	}
	h.draining = true
	for w := range h.watchers {
		w.events <- SessionEvent{Kind: Draining} // a slot is reserved for it
	}
}

// close ends all watchers.
func (h *hub) close() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.closed = true
	for w := range h.watchers {
		h.end(w)
	}
}
