package service_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fencelock/fencelock/core/lock"
	"github.com/fencelock/fencelock/core/port"
	"github.com/fencelock/fencelock/core/service"
)

func TestReleaseHandsOverInOneStoreCall(t *testing.T) {
	bubble(t, service.Config{}, func(w *world) {
		g := w.hold()
		p := w.wait()
		w.release(g)
		p.grant()
		if w.store.count("Handoff") != 1 || w.store.count("DeleteIfOwner") != 0 {
			w.Errorf("%d handoffs, %d deletions; want one handoff", w.store.count("Handoff"), w.store.count("DeleteIfOwner"))
		}
		if len(w.seen.of(port.EventHandoff)) != 1 || len(w.seen.of(port.EventGranted)) != 2 || len(w.seen.of(port.EventReleased)) != 1 {
			w.Errorf("events: %+v", w.seen.events)
		}
		for _, ok := range []bool{false, false} { // over, and over again
			if got, err := w.service.Release(w.Context(), g.Key, g.Session, g.Token); got != ok || err != nil {
				w.Errorf("release again: %v, %v", got, err)
			}
		}
		if got, err := w.service.Release(w.Context(), g.Key, lock.NewSessionID(), g.Token); got || err != nil {
			w.Errorf("release by an unknown session: %v, %v; want false", got, err)
		}
	})
}

func TestStaleReleaseMovesNothing(t *testing.T) {
	bubble(t, service.Config{}, func(w *world) {
		old := w.hold()
		w.release(old)
		g := w.hold()
		p := w.wait()
		if ok, err := w.service.Release(w.Context(), old.Key, old.Session, old.Token); ok || err != nil {
			w.Errorf("stale release: %v, %v; want false", ok, err)
		}
		p.waits()
		w.release(g)
		w.release(p.grant())
	})
}

func TestHandoffsInARowAreLimited(t *testing.T) {
	bubble(t, service.Config{HandoffLimit: 3}, func(w *world) {
		g := w.hold()
		var line []*pending
		for range 6 {
			line = append(line, w.wait())
		}
		for _, p := range line[:3] {
			w.release(g)
			g = p.grant()
		}
		w.release(g)
		if got := w.store.count("Handoff"); got != 3 {
			w.Errorf("%d handoffs; want 3", got)
		}
		line[3].waits() // the line yields, so another server comes first
		remote, err := w.store.TryInsert(w.Context(), w.request(w.session(), 0).GrantRequest)
		if err != nil || !remote.Granted {
			w.Fatalf("another server: %+v, %v; want a grant during the pause", remote, err)
		}
		w.pass(20 * time.Millisecond)
		line[3].waits()
		if _, err := w.store.DeleteIfOwner(w.Context(), theKey, remote.Grant.Session, remote.Grant.Token); err != nil {
			w.Fatal(err)
		}
		g = line[3].grant()
		w.release(g) // a fresh chain
		g = line[4].grant()
		w.release(g)
		g = line[5].grant()
		if got := w.store.count("Handoff"); got != 5 {
			w.Errorf("%d handoffs; want 5", got)
		}
		w.release(g)
	})
}

func TestLineTriesAgainAfterItsPause(t *testing.T) {
	bubble(t, service.Config{HandoffLimit: 1, FallbackPoll: time.Hour}, func(w *world) {
		g := w.hold()
		first, second := w.wait(), w.wait()
		w.release(g)
		w.release(first.grant())
		second.waits()
		w.pass(20 * time.Millisecond)
		w.release(second.grant())
	})
}

// The queue is empty between two handoffs; the chain goes on all the same.
func TestChainOutlivesAnEmptyQueue(t *testing.T) {
	bubble(t, service.Config{HandoffLimit: 2}, func(w *world) {
		g := w.hold()
		for i := range 3 {
			p := w.wait()
			w.release(g)
			if i == 2 {
				p.waits()
				w.pass(20 * time.Millisecond)
			}
			g = p.grant()
		}
		if got := w.store.count("Handoff"); got != 2 {
			w.Errorf("%d handoffs; want 2", got)
		}
		w.release(g)
	})
}

func TestRememberedChainsAreBounded(t *testing.T) {
	bubble(t, service.Config{}, func(w *world) {
		first, second := w.session(), w.session()
		for range service.MaxChains + 50 {
			req := w.request(first, 0)
			req.Key = key("k" + string(req.RequestID))
			g := w.get(req)
			req.Session, req.Wait = second, time.Hour
			p := w.start(req)
			w.release(g)
			g = p.grant()
			if _, err := w.store.DeleteIfOwner(w.Context(), g.Key, g.Session, g.Token); err != nil { // elsewhere
				w.Fatal(err)
			}
		}
		if _, _, _, _, chains := w.service.Leftovers(); chains != service.MaxChains {
			w.Errorf("%d chains remembered", chains)
		}
	})
}

func TestDeadWaiterIsSkippedWithinTheRelease(t *testing.T) {
	bubble(t, service.Config{}, func(w *world) {
		g := w.hold()
		line := []*pending{w.wait(), w.wait(), w.wait()}
		w.store.mu.Lock()
		for _, p := range line[:2] {
			delete(w.store.sessions, p.req.Session) // dead, and no news of it yet
		}
		w.store.mu.Unlock()
		w.release(g)
		g = line[2].grant()
		if n := w.store.count("DeleteIfOwner"); n != 0 {
			w.Errorf("%d plain releases; want none", n)
		}
		w.release(g)
		for _, p := range line[:2] {
			p.fails(lock.ErrSessionDead, false)
		}
	})
}

func TestOnlyDeadWaitersLeaveAPlainRelease(t *testing.T) {
	bubble(t, service.Config{}, func(w *world) {
		g := w.hold()
		p := w.wait()
		w.store.mu.Lock()
		delete(w.store.sessions, p.req.Session)
		w.store.mu.Unlock()
		w.release(g)
		p.fails(lock.ErrSessionDead, false)
		w.release(w.hold())
	})
}

func TestRefusedHandoffBecomesAPlainRelease(t *testing.T) {
	bubble(t, service.Config{}, func(w *world) {
		g := w.hold()
		p := w.wait()
		w.store.once("Handoff", refused)
		w.release(g)
		w.release(p.grant())
		if w.store.count("DeleteIfOwner") != 2 {
			w.Errorf("%d deletions; want 2", w.store.count("DeleteIfOwner"))
		}
	})
}

func TestLostAnswerOfAHandoffIsSettled(t *testing.T) {
	t.Parallel()
	for name, f := range map[string]fault{"it happened": answerLost, "it did not": requestLost} {
		t.Run(name, func(t *testing.T) {
			bubble(t, service.Config{}, func(w *world) {
				g := w.hold()
				p, next := w.wait(), w.wait()
				w.store.once("Handoff", f)
				w.release(g)
				g = p.grant()
				next.waits()
				w.release(g)
				w.release(next.grant())
			})
		})
	}
}

// The store swallows the handoff, which it carries out later, and then cannot be
// asked: the waiter must be told neither held nor lost.
func TestUnsettledHandoffLeavesNoOrphan(t *testing.T) {
	bubble(t, service.Config{}, func(w *world) {
		g := w.hold()
		p := w.start(w.request(w.session(), 2*time.Second))
		w.store.faults(func(op string, _ lock.Key) fault {
			switch op {
			case "Handoff":
				return fault{late: 3 * time.Second}
			case "Settle":
				return refused
			}
			return fault{}
		})
		w.releasing(g).returns(false, lock.ErrContention)
		p.fails(lock.ErrContention, true) // the key still seems held, but may yet be granted
		w.pass(3 * time.Second)
		w.store.faults(nil)
		if again := w.get(p.req); again.Session != p.req.Session {
			w.Errorf("the retry got %+v", again)
		}
	})
}

func TestLateHandoffCannotFollowASettledRelease(t *testing.T) {
	bubble(t, service.Config{}, func(w *world) {
		g := w.hold()
		p := w.wait()
		w.store.once("Handoff", fault{late: time.Second})
		w.release(g) // not there: deleted instead
		next := p.grant()
		w.pass(2 * time.Second)
		if info, err := w.service.Inspect(w.Context(), theKey); err != nil || info.Grant.Token != next.Token {
			w.Errorf("now %+v, %v; want token %d", info, err, next.Token)
		}
	})
}

func TestReleaserThatLeavesDuringAHandoff(t *testing.T) {
	bubble(t, service.Config{}, func(w *world) {
		g := w.hold()
		p := w.wait()
		gate := make(chan struct{})
		w.store.once("Handoff", fault{hold: gate})
		r := w.releasing(g)
		r.cancel()
		r.returns(false, context.Canceled)
		if !lock.IsAmbiguous(r.err) {
			w.Errorf("%v is not ambiguous", r.err)
		}
		p.waits() // its try found the key held
		w.release(g)
		w.release(p.grant())
	})
}

// inFlight is a waiter to which a handoff is on its way, until it lands.
func inFlight(w *world, wait time.Duration) (p *pending, r *releasing, land func()) {
	g := w.hold()
	p = w.start(w.request(w.session(), wait))
	gate := make(chan struct{})
	w.store.once("Handoff", fault{hold: gate})
	return p, w.releasing(g), func() { close(gate); synctest.Wait() }
}

// A wait ends, or its caller leaves, while the handoff to it is on its way.
func TestWithdrawalRacesWithAGrant(t *testing.T) {
	t.Parallel()
	t.Run("the wait ends first: the call learns of its grant", func(t *testing.T) {
		bubble(t, service.Config{}, func(w *world) {
			p, r, land := inFlight(w, time.Second)
			w.pass(2 * time.Second)
			p.waits()
			land()
			r.returns(true, nil)
			w.release(p.grant())
		})
	})
	t.Run("the caller leaves first: the grant stays for it to abandon", func(t *testing.T) {
		bubble(t, service.Config{}, func(w *world) {
			p, r, land := inFlight(w, time.Hour)
			p.cancel()
			p.fails(context.Canceled, true)
			withdrawn := make(chan bool)
			for range 2 { // at once, and again: it comes after the handoff all the same
				go func() {
					ok, _ := w.service.Abandon(w.Context(), theKey, p.req.Session, p.req.RequestID)
					withdrawn <- ok
				}()
			}
			synctest.Wait()
			land()
			r.returns(true, nil)
			if first, second := <-withdrawn, <-withdrawn; first == second {
				w.Errorf("abandoned: %v and %v; want one of them", first, second)
			}
			w.release(w.hold())
		})
	})
	t.Run("the grant comes first", func(t *testing.T) {
		bubble(t, service.Config{}, func(w *world) {
			p, r, land := inFlight(w, time.Hour)
			land()
			p.cancel()
			r.returns(true, nil)
			p.grant()
		})
	})
	t.Run("the caller left before it was sent: the next one gets it", func(t *testing.T) {
		bubble(t, service.Config{}, func(w *world) {
			g := w.hold()
			p, next := w.wait(), w.wait()
			p.cancel()
			w.release(g)
			p.fails(context.Canceled, false)
			next.grant()
		})
	})
}

// The same where the handoff does not come to an end in time.
func TestWithdrawalAfterAHandoffThatFails(t *testing.T) {
	t.Parallel()
	t.Run("it does not come: held", func(t *testing.T) {
		bubble(t, service.Config{}, func(w *world) {
			p, r, land := inFlight(w, time.Second)
			w.pass(2 * time.Second)
			w.kill(r.of) // the grant ends otherwise
			other := w.request(w.session(), 0)
			if a, err := w.store.TryInsert(w.Context(), other.GrantRequest); err != nil || !a.Granted {
				w.Fatalf("another server: %+v, %v", a, err)
			}
			land()
			r.returns(false, nil)
			p.held()
		})
	})
	t.Run("it hangs: the outcome is unknown, in time", func(t *testing.T) {
		bubble(t, service.Config{StoreTimeout: 3 * time.Second}, func(w *world) {
			g := w.hold()
			p := w.start(w.request(w.session(), time.Second))
			w.store.faults(func(op string, _ lock.Key) fault {
				if op == "Handoff" || op == "Settle" {
					return fault{hold: make(chan struct{})}
				}
				return fault{}
			})
			r := w.releasing(g)
			p.fails(lock.ErrContention, true)
			if p.took > 4*time.Second {
				w.Errorf("a wait of 1s took %v", p.took)
			}
			r.returns(false, lock.ErrContention)
		})
	})
}

// The head's own try finds the grant that a handoff has made, before the
// releasing call knows.
func TestOwnTryFindsTheHandedGrantFirst(t *testing.T) {
	bubble(t, service.Config{FallbackPoll: time.Second}, func(w *world) {
		g := w.hold()
		p := w.wait()
		w.store.once("Handoff", fault{late: 10 * time.Millisecond, err: nil})
		w.store.mu.Lock()
		plan := w.store.plan
		w.store.plan = func(op string, k lock.Key) fault {
			if op == "Settle" {
				return fault{delay: 2 * time.Second}
			}
			return plan(op, k)
		}
		w.store.mu.Unlock()
		r := w.releasing(g)
		w.pass(1500 * time.Millisecond)
		p.grant()
		r.returns(true, nil)
		if n := len(w.seen.of(port.EventGranted)); n != 2 {
			w.Errorf("%d reports of 2 grants", n)
		}
	})
}

func TestSecondReleaseDuringAHandoff(t *testing.T) {
	bubble(t, service.Config{}, func(w *world) {
		g := w.hold()
		p, next := w.wait(), w.wait()
		gate := make(chan struct{})
		w.store.once("Handoff", fault{hold: gate})
		first := w.releasing(g)
		second := w.releasing(g) // the client's retry, over another connection
		second.returns(true, nil)
		close(gate)
		first.returns(false, nil)
		g = p.grant()
		next.waits()
		w.release(g)
		w.release(next.grant())
	})
}

func TestExtend(t *testing.T) {
	bubble(t, service.Config{}, func(w *world) {
		req := w.request(w.session(), 0)
		req.Lease = 2500 * time.Millisecond
		g := w.get(req)
		if g.Lease != 3*time.Second {
			w.Errorf("lease %v; want whole seconds, rounded up", g.Lease)
		}
		longer, err := w.service.Extend(w.Context(), theKey, g.Session, g.Token, time.Minute)
		if err != nil || longer.Lease != time.Minute || longer.Token != g.Token {
			w.Errorf("extend: %+v, %v", longer, err)
		}
		if _, err := w.service.Extend(w.Context(), theKey, g.Session, g.Token+1, 0); !errors.Is(err, lock.ErrLost) {
			w.Errorf("extend of another token: %v; want lost", err)
		}
	})
}
