package postgres

import (
	"testing"
	"time"

	"github.com/fencelock/fencelock/core/lock"
)

// handClock is a clock that is set by hand.
type handClock struct{ now time.Duration }

func (c *handClock) Elapsed() time.Duration { return c.now }

func newTestHub(c *handClock) *hub { return newHub(&Store{clock: newDBClock(c)}) }

func testKey(t *testing.T, name string) lock.Key {
	t.Helper()
	key, err := lock.NewKey("", name)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

// woken takes the signal of a registration, if there is one.
func (w *wake) woken() bool {
	select {
	case <-w.fired:
		return true
	default:
		return false
	}
}

// TestNewsOfADeathAndTheTryThatItConcerns: the session 7 holds the key and ends. What the try has seen and the news of
// that end come in either order, and the waiter is woken. Each half of what the hub remembers is needed for one of them.
func TestNewsOfADeathAndTheTryThatItConcerns(t *testing.T) {
	t.Parallel()
	nothing := func(*hub) {}
	for _, c := range []struct {
		name      string
		newsFirst bool
		forget    func(*hub)
		woken     bool
	}{
		{"the try is answered first", false, nothing, true},
		{"the try is answered first, and who holds the key is not remembered", false, func(h *hub) {
			clear(h.holders)
		}, false},
		{"the news comes first", true, nothing, true},
		{"the news comes first, and is not remembered", true, func(h *hub) { h.deaths = deaths{} }, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			h := newTestHub(&handClock{})
			w := h.register(testKey(t, "a"))
			try, news := func() { h.held(w.key, 7) }, func() { h.ended(7) }
			first, second := try, news
			if c.newsFirst {
				first, second = news, try
			}
			first()
			c.forget(h)
			second()
			if got := w.woken(); got != c.woken {
				t.Errorf("woken: %v, want %v", got, c.woken)
			}
		})
	}
}

func TestHubWakesForTheLastHolderOnly(t *testing.T) {
	t.Parallel()
	h := newTestHub(&handClock{})
	a, b, same := h.register(testKey(t, "a")), h.register(testKey(t, "b")), h.register(testKey(t, "a"))
	h.held(a.key, 7)
	h.held(b.key, 7)
	h.held(a.key, 8)
	h.held(testKey(t, "nobody"), 7)
	h.ended(7)
	if a.woken() || same.woken() || !b.woken() {
		t.Error("the end of session 7 must wake who waits for b, and nobody else")
	}
	h.ended(8)
	if !a.woken() || !same.woken() || b.woken() {
		t.Error("the end of session 8 must wake all who wait for a, and nobody else")
	}
	h.ended(8)
	if a.woken() {
		t.Error("woken twice by one end")
	}
}

func TestHubForgetsWhoLeaves(t *testing.T) {
	t.Parallel()
	h := newTestHub(&handClock{})
	a, again := h.register(testKey(t, "a")), h.register(testKey(t, "a"))
	h.held(a.key, 7)
	a.Cancel()
	a.Cancel()
	if !h.waiting(again.key) || !h.crowded() {
		t.Error("one of two has left, and nobody is said to wait")
	}
	h.ended(7)
	if a.woken() || !again.woken() {
		t.Error("who stays must be woken, and who left must not")
	}
	h.held(again.key, 9)
	again.Cancel()
	h.fire(again.key)
	h.wakeAll()
	if h.waiting(again.key) || h.crowded() || again.woken() || len(h.queues) > 0 || len(h.holders) > 0 {
		t.Errorf("all have left; what stays is %v and %v", h.queues, h.holders)
	}
}

// TestFalseNewsWakesOnce: a session is said to have ended, and each further try finds the key held by it. A second such notice
// wakes again, and what was said before somebody waited does not concern them.
func TestFalseNewsWakesOnce(t *testing.T) {
	t.Parallel()
	h := newTestHub(&handClock{})
	h.ended(7)
	w := h.register(testKey(t, "a"))
	if h.held(w.key, 7); w.woken() {
		t.Error("woken by what was said before the try began")
	}
	for range 2 {
		if h.ended(7); !w.woken() {
			t.Error("not woken by the news")
		}
		for range 3 {
			again := h.register(w.key)
			w.Cancel()
			if w = again; h.waiting(w.key) {
				h.held(w.key, 7)
			}
			if w.woken() {
				t.Error("woken by news that was heeded")
			}
		}
	}
	// The key was handed to and fro meanwhile, so the session was not known as the holder when the true news came.
	h.held(w.key, 8)
	h.ended(7)
	if h.held(w.key, 7); !w.woken() {
		t.Error("not woken by the true news after the false")
	}
}

func TestDeathsAreRememberedForAWhile(t *testing.T) {
	t.Parallel()
	var d deaths
	d.add(1, 1, 0)
	d.add(2, 2, deathsKept)
	d.add(3, 3, deathsKept+1)
	have := func(session int64, now time.Duration) bool { return d.news(session, now) == session }
	if now := deathsKept + 1; !have(1, now) || !have(2, now) || !have(3, now) {
		t.Error("a session that ended a minute ago must be remembered")
	}
	if now := 2*deathsKept + 2; have(1, now) || !have(3, now) {
		t.Error("what ended two minutes ago is forgotten, and not before it is older than one")
	}
	if now := 5 * deathsKept; have(3, now) {
		t.Error("what ended long ago is remembered, where nothing else has ended since")
	}
	for i := range int64(3 * maxDeaths) {
		d.add(i, i, 5*deathsKept)
	}
	if n := len(d.recent) + len(d.older); n > 2*maxDeaths {
		t.Errorf("%d are remembered", n)
	}
}
