package service_test

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fencelock/fencelock/core/lock"
	"github.com/fencelock/fencelock/core/port"
	"github.com/fencelock/fencelock/core/service"
)

func TestSessionLife(t *testing.T) {
	bubble(t, service.Config{SessionTTL: 4 * time.Second}, func(w *world) {
		s, err := w.service.OpenSession(w.Context(), port.OpenRequest{Owner: "me"})
		if err != nil || s.TTL != 4*time.Second {
			w.Fatalf("open: %+v, %v; want the default TTL", s, err)
		}
		rounded, err := w.service.OpenSession(w.Context(), port.OpenRequest{Owner: "me", TTL: 2001 * time.Millisecond})
		if err != nil || rounded.TTL != 3*time.Second {
			w.Errorf("open: %+v, %v; want 3s", rounded, err)
		}
		w.pass(3 * time.Second)
		beat, err := w.service.Heartbeat(w.Context(), service.HeartbeatRequest{Session: s.ID})
		if err != nil || beat.Remaining != 4*time.Second {
			w.Errorf("heartbeat: %+v, %v", beat, err)
		}
		w.get(w.request(s.ID, 0))
		for _, want := range []int{1, 0} {
			if n, err := w.service.CloseSession(w.Context(), s.ID); n != want || err != nil {
				w.Errorf("close: %d, %v; want %d", n, err, want)
			}
		}
		if _, err := w.service.Heartbeat(w.Context(), service.HeartbeatRequest{Session: s.ID}); !errors.Is(err, lock.ErrSessionDead) {
			w.Errorf("heartbeat of a closed session: %v", err)
		}
		if len(w.seen.of(port.EventSessionOpened)) != 2 || len(w.seen.of(port.EventSessionClosed)) != 1 {
			w.Errorf("events: %+v", w.seen.events)
		}
		if n := len(w.seen.of(port.EventSessionLost)); n != 0 {
			w.Errorf("%d sessions lost; it was closed here", n)
		}
	})
}

func TestLostSessionsAreReportedByWhoServedThem(t *testing.T) {
	bubble(t, service.Config{}, func(w *world) {
		served, silent := w.session(), w.session()
		foreign, err := w.store.OpenSession(w.Context(), port.OpenRequest{Owner: "x", TTL: time.Minute})
		if err != nil {
			w.Fatal(err)
		}
		w.kill(served)
		w.kill(foreign.ID)
		w.store.mu.Lock()
		delete(w.store.sessions, silent) // no news of this one
		w.store.mu.Unlock()
		synctest.Wait()
		for range 2 {
			if _, err := w.service.Heartbeat(w.Context(), service.HeartbeatRequest{Session: silent}); !errors.Is(err, lock.ErrSessionDead) {
				w.Errorf("heartbeat: %v; want dead", err)
			}
		}
		lost := w.seen.of(port.EventSessionLost)
		if len(lost) != 2 || lost[0].Session != served || lost[1].Session != silent {
			w.Errorf("lost: %+v", lost)
		}
		if n := w.service.Served(); n != 0 {
			w.Errorf("%d sessions still remembered", n)
		}
	})
}

func TestServedSessionsAreForgottenInTheEnd(t *testing.T) {
	bubble(t, service.Config{}, func(w *world) {
		w.session()
		w.pass(lock.MaxTTL)
		if w.service.Served() != 1 {
			w.Error("forgotten too early")
		}
		w.pass(3 * time.Minute)
		if w.service.Served() != 0 {
			w.Error("never forgotten")
		}
	})
}

func TestOldHeartbeatIsDropped(t *testing.T) {
	bubble(t, service.Config{}, func(w *world) {
		s := w.session()
		for age, ok := range map[time.Duration]bool{0: true, time.Second: true, time.Second + 1: false} {
			_, err := w.service.Heartbeat(w.Context(), service.HeartbeatRequest{Session: s, ReceivedAt: w.clock.Elapsed() - age})
			if ok != (err == nil) || err != nil && (!errors.Is(err, lock.ErrContention) || lock.IsAmbiguous(err)) {
				w.Errorf("age %v: %v", age, err)
			}
		}
		if w.store.count("Heartbeat") != 2 {
			w.Errorf("%d heartbeats reached the store; want 2", w.store.count("Heartbeat"))
		}
	})
}

// The clock jumps as it does for a process that was stopped and continued.
func TestThawedServerRevivesNobody(t *testing.T) {
	t.Parallel()
	beat := func(w *world, s lock.SessionID) error {
		_, err := w.service.Heartbeat(w.Context(), service.HeartbeatRequest{Session: s, ReceivedAt: w.clock.Elapsed()})
		return err
	}
	for name, stampFirst := range map[string]bool{"heartbeat before the stamp": false, "stamp before the heartbeat": true} {
		t.Run(name, func(t *testing.T) {
			bubble(t, service.Config{}, func(w *world) {
				s := w.session()
				w.pass(10 * time.Second)
				if err := beat(w, s); err != nil {
					w.Fatalf("heartbeat before the freeze: %v", err)
				}
				w.clock.skip(1500 * time.Millisecond)
				if stampFirst {
					w.pass(300 * time.Millisecond)
				}
				if err := beat(w, s); !errors.Is(err, lock.ErrContention) {
					w.Errorf("heartbeat after the freeze: %v; want contention", err)
				}
				w.pass(500 * time.Millisecond)
				if err := beat(w, s); !errors.Is(err, lock.ErrContention) {
					w.Errorf("half a second later: %v; want contention", err)
				}
				w.pass(time.Second)
				if err := beat(w, s); err != nil {
					w.Errorf("a second later: %v", err)
				}
			})
		})
	}
}

func TestDigest(t *testing.T) {
	bubble(t, service.Config{}, func(w *world) {
		g := w.hold()
		check := func(digest uint64) service.HeartbeatResult {
			w.Helper()
			got, err := w.service.Heartbeat(w.Context(), service.HeartbeatRequest{Session: g.Session, Digest: digest, Check: true})
			if err != nil {
				w.Fatalf("heartbeat: %v", err)
			}
			return got
		}
		if got := check(lock.DigestOne(g.Key, g.Token)); got.Differs || got.Held != nil {
			w.Errorf("equal: %+v", got)
		}
		if got := check(0); !got.Differs || len(got.Held) != 1 || got.Held[0].Token != g.Token || got.Held[0].RequestID != g.RequestID {
			w.Errorf("unknown grant: %+v", got)
		}
		asked := w.store.count("LocksOf")
		if _, err := w.service.Heartbeat(w.Context(), service.HeartbeatRequest{Session: g.Session, Digest: 1}); err != nil {
			w.Fatal(err)
		}
		if w.store.count("LocksOf") != asked {
			w.Error("compared without being asked to")
		}
		w.store.once("LocksOf", fault{delay: 3 * time.Second})
		if got := check(0); got.Remaining != lock.MaxTTL-3*time.Second {
			w.Errorf("remaining %v; want the time of the comparison taken off", got.Remaining)
		}
		w.store.once("LocksOf", refused)
		if got := check(0); got.Differs || got.Remaining != lock.MaxTTL {
			w.Errorf("a comparison that failed: %+v", got)
		}
		w.store.once("LocksOf", fault{lost: true, err: lock.ErrSessionDead})
		if _, err := w.service.Heartbeat(w.Context(), service.HeartbeatRequest{Session: g.Session, Check: true}); !errors.Is(err, lock.ErrSessionDead) {
			w.Errorf("died meanwhile: %v", err)
		}
	})
}

// next takes the next event, which must be there.
func next(w *world, events <-chan service.SessionEvent) service.SessionEvent {
	w.Helper()
	synctest.Wait()
	select {
	case ev, open := <-events:
		if !open {
			w.Fatal("the watch has ended")
		}
		return ev
	default:
		w.Fatal("no event")
	}
	return service.SessionEvent{}
}

func TestWatchSession(t *testing.T) {
	bubble(t, service.Config{}, func(w *world) {
		g := w.hold()
		events, cancel := w.service.WatchSession(g.Session)
		defer cancel()
		if ev := next(w, events); ev.Kind != service.HeldNow || len(ev.Held) != 1 || ev.Held[0].Token != g.Token {
			w.Errorf("first news: %+v; want what it holds", ev)
		}
		revoke := port.RevokeRequest{Key: theKey, Operator: "op", Reason: "testing it"}
		if _, err := w.service.Revoke(w.Context(), revoke); err != nil {
			w.Fatal(err)
		}
		if ev := next(w, events); ev.Kind != service.GrantLost || ev.Key != theKey || ev.Token != g.Token || ev.Reason != port.GrantRevoked {
			w.Errorf("revoked: %+v", ev)
		}
		w.store.mu.Lock()
		w.store.tell(port.FeedEvent{Kind: port.GrantLapsed, Key: theKey, Session: g.Session, Token: 9})
		w.store.tell(port.FeedEvent{Kind: port.GrantLapsed, Key: theKey, Session: lock.NewSessionID(), Token: 10})
		w.store.tell(port.FeedEvent{Kind: port.Resync})
		w.store.mu.Unlock()
		if ev := next(w, events); ev.Kind != service.GrantLost || ev.Token != 9 || ev.Reason != port.GrantLapsed {
			w.Errorf("lapsed: %+v", ev)
		}
		if ev := next(w, events); ev.Kind != service.HeldNow || len(ev.Held) != 0 {
			w.Errorf("after a gap: %+v", ev)
		}
		w.kill(g.Session)
		if ev := next(w, events); ev.Kind != service.SessionDead {
			w.Errorf("killed: %+v", ev)
		}
		if _, open := <-events; open {
			w.Error("news after the end")
		}
		if n := len(w.seen.of(port.EventLeaseExpired)); n != 1 {
			w.Errorf("%d leases reported as expired; want 1, of the session served here", n)
		}
	})
}

func TestWatchOfADeadSessionSaysSo(t *testing.T) {
	bubble(t, service.Config{}, func(w *world) {
		w.store.once("LocksOf", refused) // and asks until it knows
		events, cancel := w.service.WatchSession(lock.NewSessionID())
		defer cancel()
		w.pass(2 * time.Second)
		if ev := next(w, events); ev.Kind != service.SessionDead {
			w.Errorf("%+v; want dead", ev)
		}
	})
}

func TestSlowWatcherHoldsNothingUpAndCatchesUp(t *testing.T) {
	bubble(t, service.Config{}, func(w *world) {
		g := w.hold()
		slow, cancel := w.service.WatchSession(g.Session)
		defer cancel()
		other := w.session()
		quick, cancelQuick := w.service.WatchSession(other)
		defer cancelQuick()
		next(w, quick)
		w.store.mu.Lock()
		for range 10 * service.WatchBuffer {
			w.store.tell(port.FeedEvent{Kind: port.GrantRevoked, Key: theKey, Session: g.Session, Token: 1})
		}
		w.store.tell(port.FeedEvent{Kind: port.GrantRevoked, Key: theKey, Session: other, Token: 2})
		w.store.mu.Unlock()
		if ev := next(w, quick); ev.Token != 2 {
			w.Errorf("the quick watcher got %+v", ev)
		}
		w.pass(5 * time.Second)
		for range len(slow) {
			<-slow
		}
		w.pass(5 * time.Second)
		if ev := next(w, slow); ev.Kind != service.HeldNow || len(ev.Held) != 1 {
			w.Errorf("the slow watcher got %+v; want what it holds", ev)
		}
		w.store.mu.Lock()
		for range 10 * service.WatchBuffer {
			w.store.tell(port.FeedEvent{Kind: port.GrantRevoked, Key: theKey, Session: g.Session, Token: 1})
		}
		w.store.kill(g.Session)
		w.store.mu.Unlock()
		synctest.Wait()
		if len(w.seen.of(port.EventSessionLost)) != 1 {
			w.Error("the slow watcher holds the feed up")
		}
		var last service.SessionEvent
		for ev := range slow {
			last = ev
		}
		if last.Kind != service.SessionDead {
			w.Errorf("last news: %+v; want dead", last)
		}
	})
}

func TestFeedThatEndsIsSubscribedAgain(t *testing.T) {
	bubble(t, service.Config{}, func(w *world) {
		g := w.hold()
		events, cancel := w.service.WatchSession(g.Session)
		defer cancel()
		next(w, events)
		w.store.mu.Lock()
		for sub := range w.store.subs {
			delete(w.store.subs, sub)
			sub.once.Do(func() { close(sub.events) })
		}
		w.store.mu.Unlock()
		w.pass(2 * time.Second)
		if ev := next(w, events); ev.Kind != service.HeldNow {
			w.Errorf("%+v; want what it holds, after the gap", ev)
		}
	})
}

func TestCloseEndsAllWatchesAndWork(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, service.Config{})
		w.service.Start()
		w.service.Start()
		g := w.hold()
		events, cancel := w.service.WatchSession(g.Session)
		next(w, events)
		p := w.wait()
		w.service.Close()
		w.service.Close()
		p.fails(lock.ErrContention, false)
		for ev := range events { // ends
			if ev.Kind != service.HeldNow {
				w.Errorf("%+v", ev)
			}
		}
		cancel()
		if late, _ := w.service.WatchSession(g.Session); late != nil {
			if _, open := <-late; open {
				w.Error("a watch on a closed service")
			}
		}
		w.clean()
		w.store.mu.Lock()
		defer w.store.mu.Unlock()
		if len(w.store.subs) != 0 {
			w.Error("the subscription is left behind")
		}
	})
}

// A session that is over finds others in line: it is told so at once and takes no place.
func TestADeadSessionDoesNotStandInLine(t *testing.T) {
	bubble(t, service.Config{MaxWaitersPerKey: 2}, func(w *world) {
		g := w.hold()
		first := w.wait()
		dead := w.session()
		w.kill(dead)
		for _, id := range []lock.SessionID{dead, lock.NewSessionID(), lock.NewSessionID()} {
			p := w.start(w.request(id, time.Hour))
			if !p.ended() {
				w.Error("a session that is over stands in line")
			}
			p.cancel()
			p.fails(lock.ErrSessionDead, false)
		}
		second := w.wait() // there is room
		w.release(g)
		w.release(first.grant())
		w.release(second.grant())
	})
}
