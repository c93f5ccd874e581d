package service_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fencelock/fencelock/core/lock"
	"github.com/fencelock/fencelock/core/port"
	"github.com/fencelock/fencelock/core/service"
)

func TestAcquireWithoutWaitIsGrantedOrHeld(t *testing.T) {
	bubble(t, service.Config{}, func(w *world) {
		g := w.hold()
		other := w.start(w.request(w.session(), 0))
		if h := other.held(); h.Token != g.Token || h.Session != g.Session || h.Owner != g.Owner {
			w.Errorf("holder %+v; want %+v", h, g)
		}
		w.release(g)
		if next := w.hold(); next.Token <= g.Token {
			w.Errorf("token %d after %d", next.Token, g.Token)
		}
		if got := len(w.seen.of(port.EventAcquired)); got != 3 {
			w.Errorf("%d acquire events; want 3", got)
		}
	})
}

func TestInvalidRequestsNeverReachTheStore(t *testing.T) {
	bubble(t, service.Config{MaxWait: time.Minute}, func(w *world) {
		session := w.session()
		ctx := w.Context()
		bad := func(change func(*service.AcquireRequest)) func() error {
			return func() error {
				req := w.request(session, 0)
				change(&req)
				_, err := w.service.Acquire(ctx, req)
				return err
			}
		}
		reason := "long enough"
		cases := map[string]func() error{
			"no key":          bad(func(r *service.AcquireRequest) { r.Key = lock.Key{} }),
			"no session":      bad(func(r *service.AcquireRequest) { r.Session = lock.SessionID{} }),
			"bad request id":  bad(func(r *service.AcquireRequest) { r.RequestID = "a b" }),
			"negative wait":   bad(func(r *service.AcquireRequest) { r.Wait = -1 }),
			"wait too long":   bad(func(r *service.AcquireRequest) { r.Wait = time.Minute + 1 }),
			"lease too short": bad(func(r *service.AcquireRequest) { r.Lease = time.Second }),
			"metadata":        bad(func(r *service.AcquireRequest) { r.Metadata = map[string]string{"": "x"} }),
			"release token":   func() error { _, err := w.service.Release(ctx, theKey, session, 0); return err },
			"extend lease":    func() error { _, err := w.service.Extend(ctx, theKey, session, 1, -1); return err },
			"abandon id":      func() error { _, err := w.service.Abandon(ctx, theKey, session, ""); return err },
			"inspect":         func() error { _, err := w.service.Inspect(ctx, lock.Key{}); return err },
			"watch":           func() error { return w.service.WatchLock(ctx, lock.Key{}, nil) },
			"heartbeat":       func() error { _, err := w.service.Heartbeat(ctx, service.HeartbeatRequest{}); return err },
			"close":           func() error { _, err := w.service.CloseSession(ctx, lock.SessionID{}); return err },
			"owner":           func() error { _, err := w.service.OpenSession(ctx, port.OpenRequest{}); return err },
			"ttl": func() error {
				_, err := w.service.OpenSession(ctx, port.OpenRequest{Owner: "o", TTL: time.Hour})
				return err
			},
			"operator": func() error {
				_, err := w.service.Revoke(ctx, port.RevokeRequest{Key: theKey, Reason: reason})
				return err
			},
			"reason": func() error {
				_, err := w.service.Revoke(ctx, port.RevokeRequest{Key: theKey, Operator: "op", Reason: "short"})
				return err
			},
			"expected": func() error {
				_, err := w.service.Revoke(ctx, port.RevokeRequest{Key: theKey, Operator: "op", Reason: reason, Expected: -1})
				return err
			},
			"floor": func() error {
				_, err := w.service.RaiseFloor(ctx, port.FloorRequest{Operator: "op", Reason: reason})
				return err
			},
			"page size": func() error { _, _, err := w.service.ListSessions(ctx, port.Page{Size: 1001}); return err },
			"namespace": func() error { _, _, err := w.service.ListLocks(ctx, "A", "", port.Page{}); return err },
			"prefix":    func() error { _, _, err := w.service.ListLocks(ctx, "", " ", port.Page{}); return err },
			"audit ns":  func() error { _, _, err := w.service.ListRevocations(ctx, "A", port.Page{}); return err },
		}
		w.store.faults(func(op string, _ lock.Key) fault {
			w.Errorf("the store was asked: %s", op)
			return fault{}
		})
		for what, call := range cases {
			if err := call(); !errors.Is(err, lock.ErrInvalid) {
				w.Errorf("%s: %v; want invalid", what, err)
			}
		}
	})
}

func TestWaitersAreServedFirstComeFirstServed(t *testing.T) {
	t.Parallel()
	for name, limit := range map[string]int{"by handoff": 0, "by plain release": -1} {
		t.Run(name, func(t *testing.T) {
			bubble(t, service.Config{HandoffLimit: limit}, func(w *world) {
				g := w.hold()
				var line []*pending
				for range 5 {
					line = append(line, w.wait())
				}
				if got := w.service.Status().Waiters; got != 5 {
					w.Errorf("%d waiters; want 5", got)
				}
				for i, p := range line {
					w.release(g)
					next := p.grant()
					if next.Token <= g.Token {
						w.Errorf("token %d after %d", next.Token, g.Token)
					}
					g = next
					for _, later := range line[i+1:] {
						later.waits()
					}
				}
				w.release(g)
			})
		})
	}
}

func TestOnlyTheHeadContendsInTheStore(t *testing.T) {
	bubble(t, service.Config{}, func(w *world) {
		g := w.hold()
		first := w.wait()
		before := w.store.count("TryInsert")
		var rest []*pending
		for range 20 {
			rest = append(rest, w.wait())
		}
		if got := w.store.count("TryInsert") - before; got != 0 {
			w.Errorf("%d tries by waiters behind the head", got)
		}
		if w.store.count("Register") != 1 {
			w.Errorf("%d registrations; want the head's only", w.store.count("Register"))
		}
		for _, p := range rest {
			p.cancel()
			p.fails(lock.ErrContention, false)
		}
		w.release(g)
		w.release(first.grant())
	})
}

// The release happens in the store between the failed try and the registration
// of the waiter: only the second try can find it.
func TestReleaseBetweenTheFailedTryAndTheWaitIsFound(t *testing.T) {
	bubble(t, service.Config{FallbackPoll: time.Hour}, func(w *world) {
		g := w.hold()
		tries := 0
		w.store.silence(true) // no time at which the holder can be dead, no wake
		w.store.faults(func(op string, _ lock.Key) fault {
			if op == "TryInsert" {
				if tries++; tries == 2 {
					w.store.drop(g) // on another server, before the registration
				}
			}
			return fault{}
		})
		p := w.wait()
		w.release(p.grant())
	})
}

func TestReleaseOnAnotherServerWakesTheHead(t *testing.T) {
	bubble(t, service.Config{FallbackPoll: time.Hour}, func(w *world) {
		g := w.hold()
		p := w.wait()
		if _, err := w.store.DeleteIfOwner(w.Context(), theKey, g.Session, g.Token); err != nil {
			w.Fatal(err)
		}
		w.release(p.grant())
	})
}

func TestHeadTriesWhenTheHolderCanBeDead(t *testing.T) {
	bubble(t, service.Config{FallbackPoll: time.Hour}, func(w *world) {
		short, err := w.service.OpenSession(w.Context(), port.OpenRequest{Owner: "o", TTL: 2 * time.Second})
		if err != nil {
			w.Fatal(err)
		}
		w.get(w.request(short.ID, 0))
		p := w.wait()
		w.pass(2*time.Second + 20*time.Millisecond)
		w.release(p.grant())
		if n := len(w.seen.of(port.EventFallback)); n != 0 {
			w.Errorf("%d fallbacks; want none", n)
		}
	})
}

func TestFallbackPollFindsAReleaseThatNoWakeTold(t *testing.T) {
	bubble(t, service.Config{FallbackPoll: 3 * time.Second}, func(w *world) {
		g := w.hold()
		w.store.silence(true)
		p := w.wait()
		w.pass(10 * time.Second)
		if _, err := w.store.DeleteIfOwner(w.Context(), theKey, g.Session, g.Token); err != nil {
			w.Fatal(err)
		}
		p.waits()
		if w.store.interrupted() {
			w.Error("the waiter was without a registration for a moment")
		}
		w.pass(3 * time.Second)
		w.release(p.grant())
		if n := len(w.seen.of(port.EventFallback)); n != 1 {
			w.Errorf("%d fallbacks; want 1", n)
		}
	})
}

func TestWaitEndsInTime(t *testing.T) {
	bubble(t, service.Config{}, func(w *world) {
		g := w.hold()
		head := w.start(w.request(w.session(), 3*time.Second))
		second := w.start(w.request(w.session(), 3*time.Second))
		w.store.once("Settle", fault{delay: 300 * time.Millisecond}) // counts as a part of the wait
		late := w.start(w.request(w.session(), 3*time.Second))
		for _, p := range []*pending{head, second, late} {
			if h := p.held(); h.Token != g.Token {
				w.Errorf("holder %+v; want token %d", h, g.Token)
			}
			if p.took != 3*time.Second {
				w.Errorf("the wait of 3s took %v", p.took)
			}
		}
		w.release(g)
	})
}

func TestCallerThatLeavesFreesItsPlace(t *testing.T) {
	bubble(t, service.Config{}, func(w *world) {
		g := w.hold()
		head, second := w.wait(), w.wait()
		head.cancel()
		head.fails(context.Canceled, false)
		if lock.CodeOf(head.err) != lock.CodeContention {
			w.Errorf("code %s; want contention", lock.CodeOf(head.err))
		}
		if !head.ended() || w.service.Status().Waiters != 1 {
			w.Errorf("%d waiters; want 1", w.service.Status().Waiters)
		}
		// The next head is on its guard without the old one's poll.
		if _, err := w.store.DeleteIfOwner(w.Context(), theKey, g.Session, g.Token); err != nil {
			w.Fatal(err)
		}
		w.release(second.grant())
	})
}

func TestCallerThatLeavesDuringATryIsToldThatTheOutcomeIsUnknown(t *testing.T) {
	bubble(t, service.Config{}, func(w *world) {
		w.store.once("TryInsert", fault{hold: make(chan struct{}), err: errUnknown})
		p := w.launch(w.request(w.session(), 0))
		p.waits()
		p.cancel()
		p.fails(context.Canceled, true)
		p.fails(lock.ErrContention, true)
	})
}

func TestCallWithoutWaitDoesNotOvertakeTheLine(t *testing.T) {
	bubble(t, service.Config{}, func(w *world) {
		g := w.hold()
		p := w.wait()
		before := w.store.count("TryInsert")
		w.start(w.request(w.session(), 0)).held()
		if w.store.count("TryInsert") != before {
			w.Error("the call without wait contended")
		}
		w.release(g)
		w.release(p.grant())
	})
}

func TestSameRequestReturnsItsGrantFromBehindALine(t *testing.T) {
	bubble(t, service.Config{}, func(w *world) {
		req := w.request(w.session(), 0)
		g := w.get(req)
		p := w.wait()
		for _, wait := range []time.Duration{0, time.Minute} {
			req.Wait = wait
			if again := w.start(req); again.grant().Token != g.Token { // at once
				w.Errorf("token %d; want %d", again.Grant.Token, g.Token)
			}
		}
		w.release(g)
		w.release(p.grant())
	})
}

func TestRetryTakesOverThePlaceOfItsRequest(t *testing.T) {
	bubble(t, service.Config{}, func(w *world) {
		g := w.hold()
		old := w.wait()
		behind := w.wait()
		retry := w.start(old.req)
		old.fails(lock.ErrContention, true)
		if got := w.service.Status().Waiters; got != 2 {
			w.Errorf("%d waiters; want 2", got)
		}
		w.release(g)
		g = retry.grant()
		behind.waits()
		w.release(g)
		w.release(behind.grant())
	})
}

func TestRetryOfAWaiterBehindTheHeadKeepsItsPlace(t *testing.T) {
	bubble(t, service.Config{}, func(w *world) {
		g := w.hold()
		head, old, last := w.wait(), w.wait(), w.wait()
		retry := w.start(old.req)
		old.fails(lock.ErrContention, true)
		for _, p := range []*pending{head, retry, last} {
			w.release(g)
			g = p.grant()
		}
		w.release(g)
	})
}

func TestRetryWithoutWaitEndsTheWait(t *testing.T) {
	bubble(t, service.Config{}, func(w *world) {
		g := w.hold()
		old := w.wait()
		last := old.req
		last.Wait = 0
		w.start(last).held()
		old.fails(lock.ErrContention, true)
		w.release(g)
	})
}

func TestQueueLimits(t *testing.T) {
	bubble(t, service.Config{MaxWaitersPerKey: 2, MaxWaiters: 3}, func(w *world) {
		g := w.hold()
		other := w.request(w.session(), 0)
		other.Key = key("other")
		w.get(other)
		line := []*pending{w.wait(), w.wait()}
		refused := func(req service.AcquireRequest, limit string) {
			w.Helper()
			_, err := w.service.Acquire(w.Context(), req)
			var e *lock.Error
			if !errors.As(err, &e) || e.Code != lock.CodeTooManyWaiters || e.RetryAfter <= 0 || !strings.Contains(e.Message, limit) {
				w.Errorf("%v; want too many waiters, limit %s", err, limit)
			}
		}
		refused(w.request(w.session(), time.Minute), "limit 2")
		elsewhere := w.request(w.session(), time.Hour)
		elsewhere.Key = other.Key
		third := w.start(elsewhere)
		fourth := elsewhere
		fourth.RequestID = "fourth"
		refused(fourth, "limit 3")
		retry := w.start(line[0].req) // a retry needs no room
		line[0].fails(lock.ErrContention, true)
		w.release(g)
		retry.grant()
		line[1].cancel()
		third.cancel()
		line[1].fails(context.Canceled, false)
		third.fails(context.Canceled, false)
	})
}

func TestDeadSessionIsNeverHeld(t *testing.T) {
	bubble(t, service.Config{}, func(w *world) {
		g := w.hold()
		dead := lock.NewSessionID()
		w.start(w.request(dead, 0)).fails(lock.ErrSessionDead, false)
		w.start(w.request(dead, time.Minute)).fails(lock.ErrSessionDead, false)
		p := w.wait()
		w.start(w.request(dead, 0)).fails(lock.ErrSessionDead, false)
		behind := w.start(w.request(dead, time.Minute))
		behind.fails(lock.ErrSessionDead, false)
		w.release(g)
		w.release(p.grant())
	})
}

func TestWaitersOfASessionThatDiesAreToldAtOnce(t *testing.T) {
	bubble(t, service.Config{}, func(w *world) {
		g := w.hold()
		head, second, third := w.wait(), w.wait(), w.wait()
		for _, p := range []*pending{second, head} {
			w.kill(p.req.Session)
			if !p.ended() {
				w.Fatal("the waiter of a dead session still waits")
			}
			p.fails(lock.ErrSessionDead, false)
		}
		w.release(g)
		w.release(third.grant())
	})
}

func TestRevocationAndCloseWakeTheHead(t *testing.T) {
	bubble(t, service.Config{FallbackPoll: time.Hour}, func(w *world) {
		w.store.silence(true) // only this server itself can tell
		g := w.hold()
		first, second, third := w.wait(), w.wait(), w.wait()
		revoke := port.RevokeRequest{Key: theKey, Operator: "op", Reason: "testing it", Expected: g.Token}
		revocation, err := w.service.Revoke(w.Context(), revoke)
		if err != nil || revocation.PreviousToken != g.Token {
			w.Fatalf("revoke: %+v, %v", revocation, err)
		}
		if _, err := w.service.Revoke(w.Context(), revoke); !errors.Is(err, lock.ErrLost) {
			w.Errorf("revoke again: %v; want lost", err)
		}
		g = first.grant()
		if n, err := w.service.CloseSession(w.Context(), g.Session); n != 1 || err != nil {
			w.Fatalf("close: %d, %v", n, err)
		}
		g = second.grant()
		if ok, err := w.service.Abandon(w.Context(), theKey, g.Session, g.RequestID); !ok || err != nil {
			w.Fatalf("abandon: %v, %v", ok, err)
		}
		w.release(third.grant())
	})
}

func TestAbandonEndsAWaitAsWell(t *testing.T) {
	bubble(t, service.Config{}, func(w *world) {
		g := w.hold()
		p := w.wait()
		ok, err := w.service.Abandon(w.Context(), theKey, p.req.Session, p.req.RequestID)
		if ok || err != nil {
			w.Errorf("abandon: %v, %v; want false", ok, err)
		}
		p.fails(lock.ErrContention, true)
		w.release(g)
		if n := len(w.seen.of(port.EventHandoff)); n != 0 {
			w.Errorf("%d handoffs to an abandoned request", n)
		}
	})
}

// The try of a waiter is on its way when its request is abandoned: the
// withdrawal must come after it.
func TestAbandonWaitsForTheTryInFlight(t *testing.T) {
	bubble(t, service.Config{}, func(w *world) {
		g := w.hold()
		p := w.wait()
		gate := make(chan struct{})
		w.store.once("TryInsert", fault{hold: gate})
		if _, err := w.store.DeleteIfOwner(w.Context(), theKey, g.Session, g.Token); err != nil {
			w.Fatal(err)
		}
		synctest.Wait() // the head, woken, is in its try
		withdrawn := make(chan bool)
		go func() {
			ok, _ := w.service.Abandon(w.Context(), theKey, p.req.Session, p.req.RequestID)
			withdrawn <- ok
		}()
		synctest.Wait()
		close(gate)
		if !<-withdrawn {
			w.Error("the grant of the abandoned request is still there")
		}
		w.hold()
	})
}

func TestLeaseOfAGrantFromATakenOverPlaceIsNotCountedTwice(t *testing.T) {
	bubble(t, service.Config{}, func(w *world) {
		g := w.hold()
		req := w.request(w.session(), time.Hour)
		req.Lease = time.Minute
		old := w.start(req)
		gate := make(chan struct{})
		w.store.once("Handoff", fault{hold: gate})
		released := w.releasing(g)
		w.pass(2 * time.Second)
		retry := w.start(req)
		old.fails(lock.ErrContention, true)
		close(gate)
		if got := retry.grant().LeaseRemaining; got != time.Minute-2*time.Second || retry.Waited != 0 {
			w.Errorf("lease remaining %v, waited %v; want 58s, 0s", got, retry.Waited)
		}
		released.returns(true, nil)
	})
}

func TestWaitedEndsWhereTheGrantingCallBegan(t *testing.T) {
	bubble(t, service.Config{}, func(w *world) {
		g := w.hold()
		p := w.wait()
		w.pass(7 * time.Second)
		w.store.once("Handoff", fault{delay: time.Second})
		w.release(g)
		p.grant()
		if p.Waited != 7*time.Second {
			w.Errorf("waited %v; want 7s", p.Waited)
		}
	})
}
