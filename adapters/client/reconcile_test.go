package client_test

import (
	"context"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fencelock/fencelock/adapters/client"
	"github.com/fencelock/fencelock/core/lock"
)

func TestLateDuplicateIsReleasedWithinTwoHeartbeats(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, 1)
		s := b.open()
		b.linked()
		b.suffer(only("acquire", 1, fault{requestTakes: 20 * time.Second})) // its retry is faster
		l := b.acquire(s, "k")
		if _, err := l.Release(t.Context()); err != nil {
			t.Fatal(err)
		}
		copied := b.seen("acquire")[0].at + 20*time.Second
		rest(copied - b.clock.Elapsed())
		synctest.Wait()
		orphan := l.Token() + 1
		if !b.holds("k", orphan) {
			t.Fatal("the scenario is broken: the late copy made no grant")
		}
		elapse(7 * time.Second) // two thirds of 10.5s
		if b.holds("k", orphan) {
			t.Error("two heartbeats later the orphan lives")
		}
	})
}

func TestGrantOfACallInFlightIsLeftToIt(t *testing.T) {
	t.Parallel()
	for name, unary := range map[string]bool{"on the stream": false, "as unary calls": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				b := newBench(t, 1, unaryIf(unary)...)
				s := b.open()
				if !unary {
					b.linked()
				}
				b.suffer(func(c call) fault {
					switch {
					case c.name == "acquire" && c.n == 1: // makes every heartbeat ask
						return fault{err: lock.ErrNotLeader}
					case c.name == "acquire":
						return fault{answerTakes: 4 * time.Second}
					}
					return fault{}
				})
				done := make(chan *client.Lock)
				go func() {
					l, _ := s.TryAcquire(t.Context(), "k")
					done <- l
				}()
				elapse(time.Second)
				b.insert("other", s.ID(), "nobody") // makes the digests differ, so that the list comes
				s.Poke()
				l := <-done
				if l == nil || !b.holds("k", l.Token()) {
					t.Error("the grant of a call in flight was released")
				}
				if n := len(b.seen("acquire")); n != 2 {
					t.Errorf("%d acquires were sent, want 2: an answer under way is waited for", n)
				}
			})
		})
	}
}

// TestGrantMadeOverADeadConnectionIsFoundWithinTwoHeartbeats: the answer to a wait never comes,
// and the connection does not say so.
func TestGrantMadeOverADeadConnectionIsFoundWithinTwoHeartbeats(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name   string
		unary  bool
		freeze time.Duration
	}{
		{name: "by unary calls", unary: true, freeze: 4 * time.Second},
		{name: "heartbeats go over a stream that came later", freeze: streamTakes / 2},
		{name: "the stream dies, too", freeze: 2 * streamTakes},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				b := newBench(t, 1)
				b.connect([]string{"http://a:80"}, append(unaryIf(c.unary), b.slowStream())...)
				b.insert("k", lock.SessionID{}, "before")
				s := b.open()
				granted := make(chan *client.Lock, 1)
				go func() {
					l, err := s.Acquire(t.Context(), "k", client.WithWait(90*time.Second))
					if err != nil {
						t.Error(err)
					}
					granted <- l
				}()
				elapse(c.freeze)
				b.nodes[0].freeze()
				b.drop("k")
				freed := b.clock.Elapsed()
				l := <-granted
				if took := b.clock.Elapsed() - freed; took > 7100*time.Millisecond { // two thirds of 10.5s
					t.Errorf("granted, but not known, for %v", took)
				}
				if l == nil || l.Token() != 2 || !b.holds("k", 2) || l.CheckStillHeld() != nil {
					t.Errorf("lock = %+v, want the grant that was made", l)
				}
				acquires := b.seen("acquire")
				if len(acquires) != 2 || acquires[0].stream || acquires[0].requestID != acquires[1].requestID {
					t.Errorf("acquires = %+v, want a unary one, and the same once again", acquires)
				}
			})
		})
	}
}

// streamTakes is how long a slow stream takes to open.
const streamTakes = 500 * time.Millisecond

// slowStream makes a client use its stream late: the second connection that it opens.
func (b *bench) slowStream() client.Option {
	var dials tally
	return client.WithDialContext(func(ctx context.Context, network, address string) (net.Conn, error) {
		if dials.add(1) == 2 {
			rest(streamTakes)
		}
		return b.net.dial(ctx, network, address)
	})
}

func TestGrantThatTheStoreDoesNotListIsLost(t *testing.T) {
	t.Parallel()
	for name, unary := range map[string]bool{"within ten heartbeats": false, "at the next one without a stream": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				b := newBench(t, 1, unaryIf(unary)...)
				s := b.open()
				gone, kept := b.acquire(s, "gone"), b.acquire(s, "kept")
				b.drop("gone")
				if unary {
					elapse(4 * time.Second)
				} else {
					elapse(40 * time.Second)
				}
				wantCode(t, gone.CheckStillHeld(), lock.CodeLost)
				if err := kept.CheckStillHeld(); err != nil {
					t.Errorf("the other lock: %v", err)
				}
				if s.State() != client.Safe {
					t.Error("the session ended with the grant")
				}
			})
		})
	}
}

func TestOrphanWithoutARetryIsFoundByTheTenthHeartbeat(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, 1)
		s := b.open()
		elapse(time.Second)
		orphan := b.insert("k", s.ID(), "long-ago")
		elapse(40 * time.Second)
		if b.holds("k", orphan) {
			t.Error("the orphan lives")
		}
	})
}

func TestHeartbeatsAskWhileSomethingMayBeLeftBehindAndThenStop(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, 1)
		s := b.open()
		b.linked()
		elapse(time.Second)
		b.suffer(only("acquire", 1, fault{err: lock.ErrNotLeader}))
		b.acquire(s, "k")
		retried := b.clock.Elapsed()
		elapse(3 * time.Minute)
		after, count := 0, 0
		for i, c := range b.seen("heartbeat") {
			since := c.at - retried
			if since > 0 && since < client.Suspicion-time.Second && !c.digest {
				t.Errorf("heartbeat %d, %v after the retry, does not ask", i, since)
			}
			if since > client.Suspicion {
				count++
				if c.digest {
					after++
				}
			}
		}
		if after == 0 || after > count/8 {
			t.Errorf("%d of %d later heartbeats ask, want one in ten", after, count)
		}
	})
}

func TestAbandonThatFailsIsFinishedByAHeartbeat(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, 1)
		s := b.open()
		b.linked()
		b.suffer(func(c call) fault {
			switch c.name {
			case "acquire":
				return fault{answerLost: true}
			case "abandon":
				return fault{err: lock.ErrNotLeader}
			}
			return fault{}
		})
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := s.Acquire(ctx, "k"); err == nil {
			t.Fatal("granted")
		}
		elapse(8 * time.Second)
		if b.holds("k", 1) {
			t.Error("a grant stayed behind")
		}
	})
}
