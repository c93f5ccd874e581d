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

// watching is a WatchLock in a goroutine.
type watching struct {
	w      *world
	seen   chan service.Inspection
	done   chan error
	cancel context.CancelFunc
}

func (w *world) watch() *watching {
	ctx, cancel := context.WithCancel(w.Context())
	v := &watching{w: w, seen: make(chan service.Inspection, 100), done: make(chan error, 1), cancel: cancel}
	go func() {
		v.done <- w.service.WatchLock(ctx, theKey, func(i service.Inspection) error {
			v.seen <- i
			return nil
		})
	}()
	return v
}

// sees expects exactly one more picture.
func (v *watching) sees(token lock.Token, waiters int) {
	v.w.Helper()
	synctest.Wait()
	if len(v.seen) == 0 {
		v.w.Fatalf("no picture; want token %d, %d waiters", token, waiters)
	}
	if i := <-v.seen; i.Held != (token != 0) || i.Grant.Token != token || i.Waiters != waiters {
		v.w.Fatalf("%+v; want token %d, %d waiters", i, token, waiters)
	}
	if len(v.seen) != 0 {
		v.w.Fatalf("%d more pictures: %+v", len(v.seen), <-v.seen)
	}
}

func TestWatchLockShowsChangesOnly(t *testing.T) {
	bubble(t, service.Config{}, func(w *world) {
		v := w.watch()
		v.sees(0, 0)
		g := w.hold()
		v.sees(g.Token, 0)
		w.pass(10 * time.Second)
		if len(v.seen) != 0 {
			w.Errorf("a picture without a change: %+v", <-v.seen)
		}
		w.store.silence(true) // only this server tells
		p := w.wait()
		v.sees(g.Token, 1)
		w.release(g)
		g = p.grant()
		v.sees(g.Token, 0)
		w.release(g)
		v.sees(0, 0)
		w.store.silence(false)
		g = w.hold()
		v.sees(g.Token, 0)
		remote := w.request(w.session(), 0)
		if _, err := w.store.DeleteIfOwner(w.Context(), theKey, g.Session, g.Token); err != nil {
			w.Fatal(err)
		}
		v.sees(0, 0)
		a, err := w.store.TryInsert(w.Context(), remote.GrantRequest) // nothing tells of this
		if err != nil {
			w.Fatal(err)
		}
		w.store.once("Read", refused) // only delays it
		w.pass(3 * time.Second)
		v.sees(a.Grant.Token, 0)
		v.cancel()
		if err := <-v.done; !errors.Is(err, context.Canceled) || !errors.Is(err, lock.ErrContention) {
			w.Errorf("ended with %v", err)
		}
	})
}

func TestWatchLockEndsWithItsReceiver(t *testing.T) {
	bubble(t, service.Config{}, func(w *world) {
		broken := errors.New("broken")
		if err := w.service.WatchLock(w.Context(), theKey, func(service.Inspection) error { return broken }); !errors.Is(err, broken) {
			w.Errorf("ended with %v", err)
		}
		w.store.once("Read", refused)
		if err := w.service.WatchLock(w.Context(), theKey, nil); !errors.Is(err, lock.ErrContention) {
			w.Errorf("no first picture: %v", err)
		}
	})
}

func TestDrain(t *testing.T) {
	bubble(t, service.Config{}, func(w *world) {
		g := w.hold()
		p, behind := w.wait(), w.wait()
		v := w.watch()
		events, cancel := w.service.WatchSession(g.Session)
		defer cancel()
		next(w, events)
		gate := make(chan struct{})
		w.store.once("Handoff", fault{hold: gate})
		r := w.releasing(g)

		short, stop := context.WithTimeout(w.Context(), time.Second)
		defer stop()
		if err := w.service.Drain(short); !errors.Is(err, context.DeadlineExceeded) {
			w.Errorf("drain: %v; a call is in flight", err)
		}
		behind.fails(lock.ErrContention, false)
		if err := <-v.done; !errors.Is(err, lock.ErrContention) {
			w.Errorf("watch ended with %v", err)
		}
		if ev := next(w, events); ev.Kind != service.Draining {
			w.Errorf("%+v; want draining", ev)
		}
		if !w.service.Status().Draining {
			w.Error("not draining")
		}
		p.waits() // for the grant that is on its way to it
		close(gate)
		if err := w.service.Drain(w.Context()); err != nil {
			w.Errorf("drain: %v", err)
		}
		r.returns(true, nil)
		g = p.grant()

		w.start(w.request(g.Session, time.Minute)).fails(lock.ErrContention, false) // no new waits
		w.release(g)                                                                // but what is held can be released,
		w.hold()                                                                    // and sessions live on
		late, cancelLate := w.service.WatchSession(g.Session)
		defer cancelLate()
		if ev := next(w, late); ev.Kind != service.Draining {
			w.Errorf("%+v; want draining", ev)
		}
		cancel()
		cancelLate()
	})
}

func TestListingsAndTheRest(t *testing.T) {
	bubble(t, service.Config{}, func(w *world) {
		g := w.hold()
		ctx := w.Context()
		if grants, _, err := w.service.ListLocks(ctx, "", "k", port.Page{}); err != nil || len(grants) != 1 {
			w.Errorf("locks: %v, %v", grants, err)
		}
		sessions, more, err := w.service.ListSessions(ctx, port.Page{})
		if err != nil || len(sessions) != port.DefaultPageSize || more != "more" {
			w.Errorf("sessions: %d, %q, %v; want a default page", len(sessions), more, err)
		}
		if _, _, err := w.service.ListRevocations(ctx, "", port.Page{Size: 1, Token: "?"}); !errors.Is(err, lock.ErrInvalid) {
			w.Errorf("revocations: %v", err)
		}
		if counts, err := w.service.Counts(ctx); err != nil || counts.Grants != 1 {
			w.Errorf("counts: %+v, %v", counts, err)
		}
		if w.service.BackendID() != "fake" {
			w.Error(w.service.BackendID())
		}
		p := w.wait()
		w.store.silence(true)
		raised, err := w.service.RaiseFloor(ctx, port.FloorRequest{Above: 1000, Operator: "op", Reason: "after a restore"})
		if err != nil || raised.EndedGrants != 1 || raised.Floor < 1000 {
			w.Errorf("raise: %+v, %v", raised, err)
		}
		if next := p.grant(); next.Token <= 1000 || next.Token <= g.Token {
			w.Errorf("token %d; want above the floor", next.Token)
		}
	})
}
