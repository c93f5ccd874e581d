package parity

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/fencelock/fencelock/core/lock"
	"github.com/fencelock/fencelock/core/port"
	"github.com/fencelock/fencelock/core/service"
)

func waitReturnsInTime(s *stage) {
	holder, other := s.open(s.First, longTTL), s.open(s.First, longTTL)
	g := s.hold(s.First, s.key("held"), holder)
	for _, b := range []port.Backend{s.First, s.Second} {
		server := s.serve(b)
		for _, wait := range []time.Duration{0, 300 * time.Millisecond} {
			began := time.Now()
			result, err := s.stand(server, s.request(g.Key, other), wait).end("an acquire returns after its wait")
			took := time.Since(began)
			if err != nil || result.Granted || result.Holder.Token != g.Token {
				s.Errorf("waited %v: granted %v, holder's token %d, %v, want held by token %d", wait, result.Granted, result.Holder.Token, err, g.Token)
			}
			if took < wait-wait/10 || took > wait+schedulingSlack {
				s.Errorf("an acquire with a wait of %v took %v", wait, took)
			}
		}
		if n := server.Status().Waiters; n != 0 {
			s.Errorf("%d waiters are left", n)
		}
	}
}

func waitEndsWithGrant(s *stage) {
	holder, other := s.open(s.First, longTTL), s.open(s.First, longTTL)
	server := s.serve(s.First)
	free := s.key("free")
	s.release(s.Second, s.stand(server, s.request(free, other), time.Hour).granted("an acquire of a free key"))
	g := s.hold(s.Second, free, holder)
	w := s.queue(server, s.request(free, other))
	if ok, err := server.Release(s.Context(), g.Key, g.Session, g.Token); !ok || err != nil {
		s.Fatalf("release: %v, %v", ok, err)
	}
	next := w.granted("the key was released")
	s.higher("release", g.Token, next.Token)
	s.holds(s.Second, next)
}

// endWakes ends grants in one way, through First, with a waiter on either server that has
// registered and tried and has nothing left to do but wait.
func endWakes(how string) func(*stage) {
	return func(s *stage) {
		heir := s.open(s.Second, longTTL)
		for i, b := range []port.Backend{s.First, s.Second} {
			g := s.hold(s.First, s.key(fmt.Sprintf("end/%d", i)), s.open(s.First, longTTL))
			ready := make(chan struct{})
			server := s.serve(tapped(b, func(n int64, _ port.Attempt) {
				if n == 2 {
					close(ready)
				}
			}))
			w := s.queue(server, s.request(g.Key, heir))
			s.await(ready, "the waiter tries again before it waits")
			s.wayToEnd(how).end(g)
			s.higher("waiting", g.Token, w.granted("the grant has ended").Token)
		}
	}
}

// await waits for a signal.
func (s *stage) await(signal <-chan struct{}, what string) {
	s.Helper()
	select {
	case <-signal:
	case <-time.After(patience):
		s.Fatalf("not within %v: %s", patience, what)
	case <-s.Context().Done():
		s.Fatalf("the case was ended: %v", context.Cause(s.Context()))
	}
}

// releaseInTheGap releases in the moment after the n-th failed attempt, before
// the server knows of it: after the first no wake is registered yet.
func releaseInTheGap(n int64) func(*stage) {
	return func(s *stage) {
		holder, heir := s.open(s.First, longTTL), s.open(s.Second, longTTL)
		for i, b := range []port.Backend{s.First, s.Second} {
			g := s.hold(s.First, s.key(fmt.Sprintf("gap/%d", i)), holder)
			released := make(chan error, 1)
			server := s.serve(tapped(b, func(attempt int64, _ port.Attempt) {
				if attempt != n {
					return
				}
				// Sent again, it may answer that this very release was done before.
				_, err := ask(s.Context(), true, func(ctx context.Context) (bool, error) {
					return s.First.Locks.DeleteIfOwner(ctx, g.Key, g.Session, g.Token)
				})
				released <- err
			}))
			w := s.stand(server, s.request(g.Key, heir), time.Hour)
			next := w.granted(fmt.Sprintf("the key was released right after attempt %d", n))
			if err := <-released; err != nil {
				s.Fatalf("release: %v", err)
			}
			s.higher("release", g.Token, next.Token)
		}
	}
}

// silentEndWakes lets a lease and a session run out under a waiter.
func silentEndWakes(s *stage) {
	holder := s.open(s.First, longTTL)
	lapsing := s.standBefore(s.serve(s.First), "lapse", func(key lock.Key) (lock.Grant, pulse) {
		g, _, p := s.lapsing(key, holder)
		return g, p
	})
	dying := s.standBefore(s.serve(s.Second), "death", func(key lock.Key) (lock.Grant, pulse) {
		_, g, p := s.mortal(s.First, key)
		return g, p
	})
	lapsing("a lapse")
	dying("a session's death")
}

// standBefore makes a grant that will end in silence, and puts a waiter in line before
// that. What it returns waits for the waiter's grant and judges the moment.
func (s *stage) standBefore(server *service.Service, name string, grant func(lock.Key) (lock.Grant, pulse)) func(how string) {
	s.Helper()
	heir := s.open(s.Second, longTTL)
	for try := range 5 {
		g, p := grant(s.key(fmt.Sprintf("%s/%d", name, try)))
		w := s.stand(server, s.request(g.Key, heir), time.Hour)
		s.eventually("the call waits or is granted", func() bool {
			select {
			case <-w.done:
				return true
			default:
				return server.Status().Waiters == 1
			}
		})
		if time.Until(p.aliveUntil) < 0 {
			w.granted("a grant that had ended before the waiter came")
			continue
		}
		return func(how string) {
			s.Helper()
			s.higher(how, g.Token, w.granted("the grant has run out").Token)
			if early := p.aliveUntil.Sub(w.at); early > 0 {
				s.Errorf("the waiter got the key %v before the grant had run out", early)
			}
			if late := w.at.Sub(p.deadBy); late > 0 {
				s.Errorf("the waiter got the key %v too late", late)
			}
		}
	}
	s.Fatalf("this machine is too slow to put a waiter in line before a grant ends; nothing can be said")
	return nil
}

// silentEndIsHeeded does what a waiter does, by hand and with the ports alone: a wake, or else
// the time after which the holder said to be in the way cannot be, is enough to get the key.
func silentEndIsHeeded(s *stage) {
	heir := s.open(s.Second, longTTL)
	leased, _, lapse := s.lapsing(s.key("lapse"), s.open(s.First, longTTL))
	_, orphan, death := s.mortal(s.First, s.key("death"))
	s.higher("a lapse", leased.Token, s.heed(s.Second, s.request(leased.Key, heir), lapse).Token)
	s.higher("a session's death", orphan.Token, s.heed(s.First, s.request(orphan.Key, heir), death).Token)
}

// heed waits with the port alone until the key is granted.
func (s *stage) heed(b port.Backend, req port.GrantRequest, p pulse) lock.Grant {
	s.Helper()
	wake := b.Waiter.Register(req.Key, 0)
	defer func() { wake.Cancel() }()
	for {
		a := s.try(b, req)
		if a.Granted {
			if early := time.Until(p.aliveUntil); early > 0 {
				s.Errorf("the key was free %v before the grant could end", early)
			}
			return a.Grant
		}
		var due <-chan time.Time
		if a.Holder.FreeWithin > 0 {
			due = time.After(max(a.Holder.FreeWithin, retryPause))
		}
		select {
		case <-wake.Fired():
			old := wake
			wake = b.Waiter.Register(req.Key, a.Holder.Token)
			old.Cancel()
		case <-due:
		case <-time.After(time.Until(p.deadBy)):
			s.Fatalf("no wake came, and no time was named, until %v after the end", deathBound+schedulingSlack)
		case <-s.Context().Done():
			s.Fatalf("the case was ended: %v", context.Cause(s.Context()))
		}
	}
}

// endFires ends grants in one way; registrations on both clients, two on each, must fire.
func endFires(s *stage) {
	heir := s.open(s.Second, longTTL)
	for _, way := range s.waysToEnd() {
		g := s.hold(s.First, s.key("fires/"+way.name), s.open(s.First, longTTL))
		var wakes []port.Wake
		for _, b := range []port.Backend{s.First, s.Second, s.First, s.Second} {
			wakes = append(wakes, b.Waiter.Register(g.Key, g.Token))
		}
		s.blocked(s.Second, s.request(g.Key, heir))
		// A wake is a hint, so one that was spent before the end is looked at again.
		for _, w := range wakes {
			s.drained(w)
		}
		way.end(g)
		for _, w := range wakes {
			s.await(w.Fired(), "a wake for a grant that was "+way.name)
			w.Cancel()
			w.Cancel()
		}
	}
}

// drained takes a pending signal, if there is one, and reports whether there was.
func (s *stage) drained(w port.Wake) bool {
	select {
	case _, open := <-w.Fired():
		return open
	default:
		return false
	}
}

// extensionDoesNotWake and unrelated writes neither: a registration sees a write that
// must wake another key, and still has not fired itself. A wake is allowed
// when a store's notifications begin anew, of which its feed tells; else only repeated ones count.
func extensionDoesNotWake(s *stage) {
	const tries = 3
	session := s.open(s.First, longTTL)
	req := s.request(s.key("watched"), session)
	req.Lease = time.Minute
	g := s.grab(s.First, req)
	wake := s.Second.Waiter.Register(g.Key, g.Token)
	defer wake.Cancel()
	s.blocked(s.Second, s.request(g.Key, session)) // a waiter tries again before it waits
	s.marker(session)
	feed := s.subscribe(s.Second)
	woken := 0
	s.eventually("the notifications go on while something is written", func() bool {
		s.drained(wake)
		must[lock.Grant](s, "extend")(s.extend(s.First, g, 2*time.Minute))
		must[lock.Grant](s, "extend")(s.extend(s.Second, g, 0))
		revoked := s.unrelated(g.Key, session)
		s.marker(session)
		fired := s.drained(wake)
		if !s.told(feed, revoked) {
			return false
		}
		if fired {
			woken++
		}
		return !fired || woken == tries
	})
	if woken == tries {
		s.Errorf("an extension or an unrelated write wakes a waiter, %d times out of %d", woken, tries)
	}
	s.drained(wake)
	s.release(s.First, g)
	s.await(wake.Fired(), "a release wakes the waiter that extensions did not")
}

// unrelated writes whatever does not end the grant of key, and returns the grant that it has revoked.
func (s *stage) unrelated(key lock.Key, session lock.Session) (revoked lock.Grant) {
	s.Helper()
	below := s.hold(s.First, s.key(key.Name()+"/below"), session)
	beside := s.hold(s.Second, s.key(key.Name()+"2"), session)
	s.blocked(s.First, s.request(key, session))
	s.heartbeat(s.First, session)
	s.release(s.First, below)
	must[lock.Revocation](s, "revoke")(s.revoke(s.First, beside.Key, 0))
	visitor := s.open(s.First, longTTL)
	s.hold(s.First, s.key("visited"), visitor)
	s.close(s.First, visitor.ID)
	return beside
}

// marker ends a grant and waits until Second's notifications have brought that: what came
// before it in the store has come by then.
func (s *stage) marker(session lock.Session) {
	s.Helper()
	for range 2 {
		g := s.hold(s.First, s.key("marker"), session)
		wake := s.Second.Waiter.Register(g.Key, g.Token)
		s.blocked(s.Second, s.request(g.Key, session)) // as above
		s.release(s.First, g)
		s.await(wake.Fired(), "the release of another key")
		wake.Cancel()
	}
}

func firstComeFirstServed(s *stage) {
	const n = 5
	holder := s.open(s.First, longTTL)
	server := s.serve(s.First)
	g := s.hold(s.First, s.key("line"), holder)
	var line []*standing
	var sessions []lock.Session
	for range n {
		session := s.open(s.First, longTTL)
		sessions = append(sessions, session)
		line = append(line, s.queue(server, s.request(g.Key, session)))
	}
	latecomer := s.open(s.First, longTTL)
	for i, w := range line {
		result, err := s.stand(server, s.request(g.Key, latecomer), 0).end("an acquire without wait")
		if err != nil || result.Granted {
			s.Errorf("a call without wait that comes last: granted %v, %v, want held", result.Granted, err)
		}
		if ok, err := server.Release(s.Context(), g.Key, g.Session, g.Token); !ok || err != nil {
			s.Fatalf("release %d: %v, %v", i, ok, err)
		}
		next := w.granted(fmt.Sprintf("the turn of waiter %d", i))
		if next.Session != sessions[i].ID {
			s.Errorf("waiter %d got the grant of another session", i)
		}
		s.higher("the turn of the next waiter", g.Token, next.Token)
		g = next
	}
}

// nobodyStarves keeps the line of one server full at every release while a
// single call waits on the other.
func nobodyStarves(s *stage) {
	const workers = 4
	cfg := service.Config{FallbackPoll: never, HandoffLimit: 8}
	busy, quiet := s.serveWith(s.First, cfg), s.serveWith(s.Second, cfg)
	key := s.key("popular")
	ctx, cancel := context.WithCancel(s.Context())
	defer cancel()
	g := s.hold(s.First, key, s.open(s.First, longTTL))
	for range workers {
		session := s.open(s.First, longTTL)
		go func() { // ends with the context
			for ctx.Err() == nil {
				req := service.AcquireRequest{GrantRequest: s.request(key, session), Wait: time.Hour}
				a, err := ask(ctx, true, func(ctx context.Context) (service.AcquireResult, error) { return busy.Acquire(ctx, req) })
				if err != nil || !a.Granted {
					continue
				}
				for busy.Status().Waiters < workers-1 && pause(ctx, time.Millisecond) {
					continue // the others come back into line
				}
				_, _ = ask(ctx, true, func(ctx context.Context) (bool, error) {
					return busy.Release(ctx, key, session.ID, a.Grant.Token)
				})
			}
		}()
	}
	s.eventually("the busy server's line is full", func() bool { return busy.Status().Waiters == workers })
	w := s.queue(quiet, s.request(key, s.open(s.Second, longTTL)))
	if ok, err := busy.Release(ctx, key, g.Session, g.Token); !ok || err != nil {
		s.Fatalf("release: %v, %v", ok, err)
	}
	w.granted("a waiter on the other server has its turn")
}

func interruptionEnds(s *stage) {
	holder, session, next := s.open(s.First, longTTL), s.open(s.First, longTTL), s.open(s.First, longTTL)
	for i, b := range []port.Backend{s.First, s.Second} {
		registrations := &registrar{ReleaseWaiter: b.Waiter}
		b.Waiter = registrations
		server := s.serve(b)
		g := s.hold(s.First, s.key(fmt.Sprintf("left/%d", i)), holder)
		req := s.request(g.Key, session)
		w, behind := s.queue(server, req), s.queue(server, s.request(g.Key, next))
		w.cancel()
		if result, err := w.end("an interrupted acquire returns"); err == nil || !errors.Is(err, context.Canceled) {
			s.Errorf("an interrupted acquire returned granted %v, %v, want the reason", result.Granted, err)
		}
		if n := server.Status().Waiters; n != 1 {
			s.Errorf("%d waiters are left after one of two was interrupted", n)
		}
		s.heartbeat(s.Second, session)
		s.release(s.Second, g)
		after := behind.granted("the waiter behind the interrupted one")
		s.holdsNothing(s.Second, session)
		s.release(s.First, after)
		s.eventually("nobody is in line", func() bool { return server.Status().Waiters == 0 })
		s.eventually("no registration is left", func() bool { return registrations.open.Load() == 0 })
		s.release(s.First, s.hold(s.First, g.Key, holder))
	}
}

// cancelledStaysQuiet: a registration that was ended does not fire any more.
func cancelledStaysQuiet(s *stage) {
	session := s.open(s.First, longTTL)
	for i, b := range []port.Backend{s.First, s.Second} {
		g := s.hold(s.First, s.key(fmt.Sprintf("quiet/%d", i)), session)
		left, stays := b.Waiter.Register(g.Key, g.Token), b.Waiter.Register(g.Key, g.Token)
		s.blocked(b, s.request(g.Key, session))
		left.Cancel()
		s.drained(left)
		s.drained(stays)
		s.release(s.First, g)
		s.await(stays.Fired(), "the release wakes who stays")
		if s.drained(left) {
			s.Errorf("a registration fires after its end: it is still there")
		}
		stays.Cancel()
	}
}
