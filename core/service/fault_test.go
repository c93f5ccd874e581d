package service_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/fencelock/fencelock/core/lock"
	"github.com/fencelock/fencelock/core/service"
)

func TestStoreThatCannotBeAskedIsNeverHeldLostOrDead(t *testing.T) {
	bubble(t, service.Config{}, func(w *world) {
		g := w.hold()
		head := w.start(w.request(w.session(), 5*time.Second))
		second := w.start(w.request(w.session(), 5*time.Second))
		w.store.faults(func(string, lock.Key) fault { return refused })
		fresh := w.start(w.request(g.Session, 3*time.Second))
		w.start(w.request(g.Session, 0)).fails(lock.ErrContention, false)
		for _, p := range []*pending{head, second, fresh} {
			p.fails(lock.ErrContention, false)
			if p.took > p.req.Wait {
				w.Errorf("a wait of %v took %v", p.req.Wait, p.took)
			}
		}
		if _, err := w.service.Release(w.Context(), g.Key, g.Session, g.Token); !errors.Is(err, lock.ErrContention) {
			w.Errorf("release: %v; want contention", err)
		}
		if _, err := w.service.Heartbeat(w.Context(), service.HeartbeatRequest{Session: g.Session}); !errors.Is(err, lock.ErrContention) {
			w.Errorf("heartbeat: %v; want contention", err)
		}
		w.store.faults(nil)
		w.release(g)
	})
}

func TestWaitOutlastsAnOutage(t *testing.T) {
	bubble(t, service.Config{}, func(w *world) {
		w.store.faults(func(op string, _ lock.Key) fault {
			if op == "TryInsert" {
				return requestLost
			}
			return fault{}
		})
		p := w.wait()
		w.pass(30 * time.Second)
		p.waits()
		w.store.faults(nil)
		w.pass(time.Second)
		w.release(p.grant())
	})
}

func TestBehindALineAnOutageIsOutlastedToo(t *testing.T) {
	bubble(t, service.Config{}, func(w *world) {
		g := w.hold()
		p := w.wait()
		w.store.faults(func(op string, _ lock.Key) fault {
			if op == "Settle" {
				return refused
			}
			return fault{}
		})
		second := w.wait()
		w.pass(10 * time.Second)
		w.store.faults(nil)
		w.pass(time.Second)
		w.release(g)
		w.release(p.grant())
		w.release(second.grant())
	})
}

func TestLostAnswerOfATryIsFoundByTheNext(t *testing.T) {
	bubble(t, service.Config{}, func(w *world) {
		w.store.once("TryInsert", answerLost)
		p := w.wait()
		w.pass(time.Second)
		g := p.grant()
		if g.Token != 1 {
			w.Errorf("token %d; want the first", g.Token)
		}
		w.release(g)
	})
}

func TestLostAnswerAtTheEndOfTheWait(t *testing.T) {
	t.Parallel()
	for name, asked := range map[string]bool{"the store can be asked": true, "it cannot": false} {
		t.Run(name, func(t *testing.T) {
			bubble(t, service.Config{}, func(w *world) {
				w.store.faults(func(op string, _ lock.Key) fault {
					switch {
					case op == "TryInsert":
						return answerLost
					case op == "LocksOf" && !asked:
						return refused
					}
					return fault{}
				})
				p := w.start(w.request(w.session(), 10*time.Millisecond))
				if asked {
					<-p.done
					p.grant()
				} else {
					p.fails(lock.ErrContention, true)
				}
			})
		})
	}
}

func TestCallerThatLeavesAfterALostAnswerIsTold(t *testing.T) {
	bubble(t, service.Config{}, func(w *world) {
		g := w.hold()
		p := w.wait()
		w.store.once("TryInsert", answerLost)
		if _, err := w.store.DeleteIfOwner(w.Context(), theKey, g.Session, g.Token); err != nil {
			w.Fatal(err)
		}
		p.waits() // its try was granted, which it does not know
		p.cancel()
		p.fails(context.Canceled, true)
	})
}

func TestAmbiguityOutlivesAFullQueue(t *testing.T) {
	bubble(t, service.Config{MaxWaiters: 1}, func(w *world) {
		other := w.request(w.session(), time.Hour)
		other.Key = key("other")
		taken := other
		taken.RequestID, taken.Wait = "first", 0
		w.get(taken)
		p := w.start(other)
		w.store.once("TryInsert", answerLost)
		w.start(w.request(w.session(), time.Minute)).fails(lock.ErrTooManyWaiters, true)
		p.cancel()
	})
}

func TestTerminalErrorEndsTheWaitOfTheHead(t *testing.T) {
	bubble(t, service.Config{FallbackPoll: time.Second}, func(w *world) {
		g := w.hold()
		p, next := w.wait(), w.wait()
		w.store.once("TryInsert", fault{lost: true, err: lock.ErrUnsafeStore})
		w.pass(time.Second)
		p.fails(lock.ErrUnsafeStore, false)
		w.release(g)
		w.release(next.grant())
	})
}

func TestSlowStoreIsBounded(t *testing.T) {
	bubble(t, service.Config{StoreTimeout: 2 * time.Second}, func(w *world) {
		w.store.once("TryInsert", fault{hold: make(chan struct{})})
		p := w.start(w.request(w.session(), 0))
		p.fails(lock.ErrContention, true)
		if p.took != 2*time.Second {
			w.Errorf("took %v; want the store's time limit", p.took)
		}
		if errors.Is(p.err, context.Canceled) {
			w.Errorf("%v: nobody cancelled", p.err)
		}
	})
}

func TestSlowStoreDoesNotOutlastTheWait(t *testing.T) {
	bubble(t, service.Config{StoreTimeout: 5 * time.Second}, func(w *world) {
		w.store.once("TryInsert", fault{hold: make(chan struct{})})
		p := w.start(w.request(w.session(), 2*time.Second))
		p.fails(lock.ErrContention, true)
		if p.took != 3*time.Second {
			w.Errorf("took %v; want the wait and a second", p.took)
		}
	})
}

func TestErrorOutsideTheSetDoesNotPass(t *testing.T) {
	bubble(t, service.Config{}, func(w *world) {
		raw := errors.New("raw")
		w.store.once("Ping", fault{err: raw})
		err := w.service.Ping(w.Context())
		if !errors.Is(err, lock.ErrContention) || !errors.Is(err, raw) || !lock.IsAmbiguous(err) {
			w.Errorf("%v; want ambiguous contention with its cause", err)
		}
		if err := w.service.Ping(w.Context()); err != nil {
			w.Errorf("ping: %v", err)
		}
	})
}

func TestCancelledCallDoesNotReachTheStore(t *testing.T) {
	bubble(t, service.Config{}, func(w *world) {
		ctx, cancel := context.WithCancel(w.Context())
		cancel()
		_, err := w.service.Acquire(ctx, w.request(w.session(), 0))
		if !errors.Is(err, context.Canceled) || !errors.Is(err, lock.ErrContention) || lock.IsAmbiguous(err) {
			w.Errorf("%v; want contention, not ambiguous", err)
		}
		if w.store.count("TryInsert") != 0 {
			w.Error("the store was asked")
		}
	})
}
