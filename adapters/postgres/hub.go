package postgres

import (
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/fencelock/fencelock/core/lock"
	"github.com/fencelock/fencelock/core/port"
)

const (
	// deathsKept is how long the end of a session is remembered at least: longer than any answer is under way.
	deathsKept = time.Minute
	// maxDeaths bounds how many are remembered at a time, twice.
	maxDeaths = 1 << 16
)

// hub wakes waiters. It is told of keys that became free and of sessions that ended, by the listener and by what this Store has
// done itself.
//
// The news of a session's end does not say what the session held. So the hub remembers whom the last try saw
// holding each key that is waited for; and, since the news can overtake the answer to that try, which sessions ended lately.
// That is believed once: a try that begins after the news sees for itself whether it is so. Else one false notice, or a session
// number that comes again after a restore, would have waiters try without a pause.
// A grant that was handed on meanwhile is found by a question to the store; see [feed].
type hub struct {
	clock *dbClock

	mu     sync.Mutex
	queues map[lock.Key]*queue
	// holders are the sessions that were seen holding keys of queues, by their numbers.
	holders map[int64]map[lock.Key]struct{}
	deaths  deaths
	// news counts what was said of ends of sessions.
	news int64
}

// queue is who waits for one key; the order is of no account.
type queue struct {
	wakes map[*wake]struct{}
	// holder is the number of the session that was seen holding the key last; 0 if none was.
	holder int64
	// heeded is how many news there were when all who wait here were woken last: their next tries see what these are of.
	heeded int64
}

func newHub(s *Store) *hub {
	return &hub{clock: s.clock, queues: map[lock.Key]*queue{}, holders: map[int64]map[lock.Key]struct{}{}}
}

// wake is one registration.
type wake struct {
	hub   *hub
	key   lock.Key
	fired chan struct{}
}

// Register implements port.ReleaseWaiter.
func (s *Store) Register(key lock.Key, _ lock.Token) port.Wake { return s.waiters.register(key) }

func (h *hub) register(key lock.Key) *wake {
	w := &wake{hub: h, key: key, fired: make(chan struct{}, 1)}
	h.mu.Lock()
	defer h.mu.Unlock()
	q := h.queues[key]
	if q == nil {
		q = &queue{wakes: map[*wake]struct{}{}, heeded: h.news}
		h.queues[key] = q
	}
	q.wakes[w] = struct{}{}
	return w
}

// Fired implements port.Wake.
func (w *wake) Fired() <-chan struct{} { return w.fired }

// Cancel implements port.Wake.
func (w *wake) Cancel() {
	h := w.hub
	h.mu.Lock()
	defer h.mu.Unlock()
	q := h.queues[w.key]
	if q == nil {
		return
	}
	if delete(q.wakes, w); len(q.wakes) == 0 {
		h.forget(w.key, q)
		delete(h.queues, w.key)
	}
}

// wake wakes all who wait for a key. The caller holds the mutex.
func (h *hub) wake(q *queue) {
	q.heeded = h.news
	for w := range q.wakes {
		select {
		case w.fired <- struct{}{}:
		default:
		}
	}
}

// forget forgets who holds the key.
func (h *hub) forget(key lock.Key, q *queue) {
	keys := h.holders[q.holder]
	if delete(keys, key); len(keys) == 0 {
		delete(h.holders, q.holder)
	}
	q.holder = 0
}

// waiting reports whether somebody waits here for the key.
func (h *hub) waiting(key lock.Key) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.queues[key] != nil
}

// crowded reports whether somebody waits here for any key.
func (h *hub) crowded() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.queues) > 0
}

// awaited returns the keys that somebody waits here for.
func (h *hub) awaited() []lock.Key {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Collect(maps.Keys(h.queues))
}

// fire wakes who waits for the key: it may be free.
func (h *hub) fire(key lock.Key) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if q := h.queues[key]; q != nil {
		h.wake(q)
	}
}

// wakeAll wakes everyone.
func (h *hub) wakeAll() {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, q := range h.queues {
		h.wake(q)
	}
}

// held notes that a try found the key held by the session of that number. If that session has ended since, the news
// of it may have come while the try was under way.
func (h *hub) held(key lock.Key, session int64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	q := h.queues[key]
	if q == nil {
		return
	}
	h.forget(key, q)
	if h.deaths.news(session, h.clock.elapsed()) > q.heeded {
		h.wake(q)
		return
	}
	q.holder = session
	if h.holders[session] == nil {
		h.holders[session] = map[lock.Key]struct{}{}
	}
	h.holders[session][key] = struct{}{}
}

// ended wakes who waits for a key that the session of that number was seen holding.
func (h *hub) ended(session int64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.news++
	h.deaths.add(session, h.news, h.clock.elapsed())
	for key := range h.holders[session] {
		q := h.queues[key]
		h.wake(q)
		h.forget(key, q)
	}
}

// deaths are the sessions that ended lately, each with the number of that news, in two generations.
type deaths struct {
	recent, older map[int64]int64
	// turned is when recent was begun.
	turned time.Duration
}

func (d *deaths) add(session, news int64, now time.Duration) {
	d.age(now)
	if d.recent == nil || len(d.recent) >= maxDeaths {
		d.turn(now)
	}
	d.recent[session] = news
}

// age forgets what is old.
func (d *deaths) age(now time.Duration) {
	switch {
	case now-d.turned > 2*deathsKept:
		d.recent, d.older = nil, nil
	case now-d.turned > deathsKept:
		d.turn(now)
	}
}

func (d *deaths) turn(now time.Duration) {
	d.recent, d.older, d.turned = map[int64]int64{}, d.recent, now
}

// news returns the number of the last news of the session's end; 0 if there is none.
func (d *deaths) news(session int64, now time.Duration) int64 {
	d.age(now)
	return max(d.recent[session], d.older[session])
}
