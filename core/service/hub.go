package service

import (
	"sync"
	"time"

	"github.com/fencelock/fencelock/core/lock"
)

const (
	// watchBuffer is how many events a watcher may be behind.
	watchBuffer = 16
	// reserved slots of that buffer are for Draining and SessionDead, which
	// are sent once each and must not be lost.
	reserved = 2
	// servedFor is how long a session that no longer heartbeats here is remembered:
	// longer than it can live.
	servedFor = lock.MaxTTL + time.Minute
)

// hub knows the sessions that this server serves and those that are watched.
// Nothing in it blocks: a watcher that is behind loses events and is told the store's view later.
type hub struct {
	mu      sync.Mutex
	watches map[lock.SessionID]map[*watch]struct{}
	// seen is when each session was last served here.
	seen map[lock.SessionID]time.Duration
	// stale sessions are to be read from the store; later ones after a pause.
	stale, later     map[lock.SessionID]struct{}
	work             chan struct{}
	draining, closed bool
}

type watch struct{ events chan SessionEvent }

func newHub() *hub {
	return &hub{
		watches: map[lock.SessionID]map[*watch]struct{}{},
		seen:    map[lock.SessionID]time.Duration{},
		stale:   map[lock.SessionID]struct{}{},
		later:   map[lock.SessionID]struct{}{},
		work:    make(chan struct{}, 1),
	}
}

// add starts a watch, whose first news is the store's view.
func (h *hub) add(session lock.SessionID) *watch {
	h.mu.Lock()
	defer h.mu.Unlock()
	w := &watch{events: make(chan SessionEvent, watchBuffer)}
	if h.closed {
		close(w.events)
		return w
	}
	if h.watches[session] == nil {
		h.watches[session] = map[*watch]struct{}{}
	}
	h.watches[session][w] = struct{}{}
	if h.draining {
		w.events <- SessionEvent{Kind: Draining, Session: session}
	}
	h.refresh(session)
	return w
}

// drop ends a watch.
func (h *hub) drop(session lock.SessionID, w *watch) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if _, there := h.watches[session][w]; !there {
		return
	}
	close(w.events)
	delete(h.watches[session], w)
	if len(h.watches[session]) == 0 {
		h.unwatch(session)
	}
}

func (h *hub) unwatch(session lock.SessionID) {
	delete(h.watches, session)
	delete(h.stale, session)
	delete(h.later, session)
}

// send passes an event to the watchers of its session.
func (h *hub) send(ev SessionEvent) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for w := range h.watches[ev.Session] {
		if len(w.events) < watchBuffer-reserved {
			w.events <- ev
		} else {
			h.later[ev.Session] = struct{}{}
		}
	}
}

// over ends the watches of a session and forgets it. It reports whether this server served it.
func (h *hub) over(session lock.SessionID) (served bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for w := range h.watches[session] {
		w.events <- SessionEvent{Kind: SessionDead, Session: session}
		close(w.events)
	}
	h.unwatch(session)
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
		if len(w.events) < watchBuffer-reserved {
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
	for session, watches := range h.watches {
		for w := range watches {
			w.events <- SessionEvent{Kind: Draining, Session: session}
		}
	}
}

// close ends all watches.
func (h *hub) close() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.closed = true
	for session, watches := range h.watches {
		for w := range watches {
			close(w.events)
		}
		h.unwatch(session)
	}
}
