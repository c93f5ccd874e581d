package parity

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/fencelock/fencelock/core/lock"
	"github.com/fencelock/fencelock/core/port"
)

func wrongSessionRelease(s *stage) {
	holder, other := s.open(s.First, longTTL), s.open(s.Second, longTTL)
	g := s.hold(s.First, s.key("mine"), holder)
	s.refuses(g, g.Key, other.ID, g.Token)
	s.refuses(g, g.Key, lock.NewSessionID(), g.Token)
	s.refuses(g, s.key("mine/other"), holder.ID, g.Token)
	s.release(s.Second, g)
}

func staleRelease(s *stage) {
	a, b := s.open(s.First, longTTL), s.open(s.First, longTTL)
	first := s.hold(s.First, s.key("stale"), a)
	s.refuses(first, first.Key, a.ID, first.Token+1)
	s.refuses(first, first.Key, a.ID, first.Token+1_000_000)
	s.release(s.First, first)
	second := s.hold(s.First, first.Key, a)
	s.refuses(second, first.Key, a.ID, first.Token)
	s.release(s.First, second)
	third := s.hold(s.Second, first.Key, b)
	for _, old := range []lock.Grant{first, second} {
		s.refuses(third, old.Key, a.ID, old.Token)
		s.refuses(third, old.Key, b.ID, old.Token)
	}
	s.refuses(third, third.Key, a.ID, third.Token)
	s.release(s.First, third)
}

// refuses releases with what is not the live grant g, on both clients, and
// sees that g still stands.
func (s *stage) refuses(g lock.Grant, key lock.Key, session lock.SessionID, token lock.Token) {
	s.Helper()
	for _, b := range []port.Backend{s.First, s.Second} {
		if s.end(b, key, session, token) {
			s.Errorf("release of %s with token %d by %v: true, want false", key.Name(), token, session)
		}
		s.holds(b, g)
	}
}

func releaseOfOver(s *stage) {
	for _, way := range s.waysToEnd() {
		g := s.hold(s.First, s.key("over/"+way.name), s.open(s.First, longTTL))
		way.end(g)
		for _, b := range []port.Backend{s.First, s.Second, s.First} {
			if s.end(b, g.Key, g.Session, g.Token) {
				s.Errorf("release of a grant that was %s: true, want false", way.name)
			}
		}
		if s.read(s.First, g.Key).Held {
			s.Errorf("a grant that was %s is held", way.name)
		}
	}
}

// wayToEnd is one way in which a grant ends by somebody's act.
type wayToEnd struct {
	name string
	end  func(lock.Grant)
}

// waysToEnd acts through First.
func (s *stage) waysToEnd() []wayToEnd {
	return []wayToEnd{
		{"released", func(g lock.Grant) { s.release(s.First, g) }},
		{"revoked", func(g lock.Grant) { must[lock.Revocation](s, "revoke")(s.revoke(s.First, g.Key, g.Token)) }},
		{"withdrawn", func(g lock.Grant) {
			if !s.abandon(s.First, port.GrantRequest{Key: g.Key, Session: g.Session, RequestID: g.RequestID}) {
				s.Fatalf("abandon of a live grant: false, want true")
			}
		}},
		{"closed", func(g lock.Grant) {
			if n := s.close(s.First, g.Session); n != 1 {
				s.Fatalf("close returned %d, want 1", n)
			}
		}},
	}
}

// wayToEnd returns one of waysToEnd by its name.
func (s *stage) wayToEnd(name string) wayToEnd {
	s.Helper()
	ways := s.waysToEnd()
	i := slices.IndexFunc(ways, func(w wayToEnd) bool { return w.name == name })
	if i < 0 {
		s.Fatalf("there is no way to end a grant that is called %q", name)
	}
	return ways[i]
}

// truths calls both clients n times at once and counts the answers that are
// true. The count is only complete if no call failed.
func (s *stage) truths(n int, call func(i int, b port.Backend) (bool, error)) (count int, complete bool) {
	answers, errs := make([]bool, n), make([]error, n)
	var group sync.WaitGroup
	for i := range n {
		b := []port.Backend{s.First, s.Second}[i%2]
		group.Go(func() { answers[i], errs[i] = call(i, b) })
	}
	group.Wait()
	complete = true
	for i := range n {
		if answers[i] {
			count++
		}
		if errs[i] != nil {
			s.blip("call at once with others", errs[i])
			complete = false
		}
	}
	return count, complete
}

func releaseAtOnce(s *stage) {
	holder := s.open(s.First, longTTL)
	for round := range 4 {
		g := s.hold(s.First, s.key(fmt.Sprintf("crowd/%d", round)), holder)
		n, complete := s.truths(8, func(_ int, b port.Backend) (bool, error) {
			return b.Locks.DeleteIfOwner(s.Context(), g.Key, g.Session, g.Token)
		})
		if n > 1 || n == 0 && complete {
			s.Errorf("%d of 8 releases of one grant returned true, want 1", n)
		}
	}
}

func extendMovesTheEnd(s *stage) {
	session := s.open(s.First, longTTL)
	req := s.request(s.key("later"), session)
	req.Lease = 30 * time.Second
	g := s.grab(s.First, req)
	check := func(what string, got lock.Grant, err error, lowest, highest time.Duration) {
		s.Helper()
		if err != nil {
			s.Fatalf("%s: %v", what, err)
		}
		if got.LeaseRemaining < lowest || got.LeaseRemaining > highest {
			s.Errorf("%s: remaining %v, want %v to %v", what, got.LeaseRemaining, lowest, highest)
		}
	}
	got, err := s.extend(s.Second, g, 0)
	check("extend by the grant's own lease", got, err, 10*time.Second, 30*time.Second)
	got, err = s.extend(s.First, g, 5*time.Minute)
	check("extend to 5 min", got, err, 4*time.Minute, 5*time.Minute)
	got, err = s.extend(s.Second, g, 2*time.Second)
	check("extend by less than what is left", got, err, 4*time.Minute, 5*time.Minute)
	got, err = s.extend(s.First, g, 0)
	check("extend by the own lease when more is left", got, err, 4*time.Minute, 5*time.Minute)
	check("a request sent again", s.grab(s.Second, req), nil, 4*time.Minute, 5*time.Minute)
}

func extendedOutlives(s *stage) {
	session, other := s.open(s.First, longTTL), s.open(s.Second, longTTL)
	req := s.request(s.key("outlives"), session)
	req.Lease = lock.MinTTL
	var g lock.Grant
	s.eventually("a lease is extended before it has run out", func() bool {
		sent := time.Now()
		g = s.grab(s.First, req)
		_, err := s.extend(s.Second, g, time.Minute)
		if err != nil && (!errors.Is(err, lock.ErrLost) || time.Since(sent) < req.Lease) {
			s.Fatalf("extend: %v", err)
		}
		return err == nil
	})
	// A lease like the first, begun later, is over: so is the first.
	witness := s.request(s.key("witness"), session)
	witness.Lease = lock.MinTTL
	s.lapse(s.grab(s.First, witness))
	s.holds(s.First, g)
	if h := s.blocked(s.Second, s.request(g.Key, other)); h.Token != g.Token {
		s.Errorf("held by token %d, want the extended grant's %d", h.Token, g.Token)
	}
	s.release(s.Second, g)
}

// lapse waits until the lease of g has run out, as a read shows it.
func (s *stage) lapse(g lock.Grant) {
	s.Helper()
	s.eventually("the lease of "+g.Key.Name()+" has lapsed", func() bool { return !s.read(s.Second, g.Key).Held })
}

func extendWithoutLease(s *stage) {
	session := s.open(s.First, longTTL)
	g := s.hold(s.First, s.key("bare"), session)
	for _, lease := range []time.Duration{0, lock.MinTTL, time.Minute} {
		got := must[lock.Grant](s, "extend")(s.extend(s.Second, g, lease))
		if got.Token != g.Token || got.Lease != 0 || got.LeaseRemaining != 0 {
			s.Errorf("extend by %v made lease %v remaining %v, want none", lease, got.Lease, got.LeaseRemaining)
		}
	}
	s.holds(s.First, g)
}

func extendOfOver(s *stage) {
	holder, other := s.open(s.First, longTTL), s.open(s.First, longTTL)
	for i, lease := range []time.Duration{0, time.Minute} {
		req := s.request(s.key(fmt.Sprintf("live/%d", i)), holder)
		req.Lease = lease
		g := s.grab(s.First, req)
		stale, foreign, free := g, g, g
		stale.Token, foreign.Session, free.Key = g.Token+1, other.ID, s.key("free")
		s.lost(stale, foreign, free)
		s.holds(s.Second, g)
		s.release(s.Second, g)
		s.lost(g)
		heir := s.hold(s.First, g.Key, other)
		s.lost(g)
		must[lock.Revocation](s, "revoke")(s.revoke(s.Second, g.Key, 0))
		s.lost(g, heir)
	}
}

// lost extends grants that are over, of sessions that live, on both clients.
func (s *stage) lost(grants ...lock.Grant) {
	s.Helper()
	for _, g := range grants {
		for _, b := range []port.Backend{s.First, s.Second} {
			for _, lease := range []time.Duration{0, time.Minute} {
				_, err := s.extend(b, g, lease)
				s.expect("extend of a grant that is over", err, lock.ErrLost)
			}
		}
	}
}

func extendAtOnce(s *stage) {
	session := s.open(s.First, longTTL)
	for i := range 6 {
		req := s.request(s.key(fmt.Sprintf("fresh/%d", i)), session)
		req.Lease = time.Minute * time.Duration(i%2)
		g := s.grab(s.First, req)
		if _, err := s.extend([]port.Backend{s.First, s.Second}[i%2], g, 0); err != nil {
			s.Errorf("extend of a fresh grant: %v", err)
		}
	}
}

func extendDuringBlip(s *stage) {
	session := s.open(s.First, longTTL)
	req := s.request(s.key("blip"), session)
	req.Lease = 5 * time.Minute
	g := s.grab(s.First, req)
	heal := s.Partition(s)
	ctx, cancel := s.cut()
	defer cancel()
	_, err := s.First.Locks.Extend(ctx, g.Key, g.Session, g.Token, 0)
	s.blip("extend", err)
	heal()
	if _, err := s.extend(s.First, g, 0); err != nil {
		s.Errorf("extend after the blip: %v", err)
	}
}

// lapsing acquires key with the shortest lease for a session that outlives it.
func (s *stage) lapsing(key lock.Key, session lock.Session) (lock.Grant, port.GrantRequest, pulse) {
	s.Helper()
	req := s.request(key, session)
	req.Lease = lock.MinTTL
	sent := time.Now()
	g := s.grab(s.First, req)
	return g, req, pulse{
		aliveUntil: sent.Add(g.LeaseRemaining),
		deadBy:     time.Now().Add(req.Lease + deathBound + schedulingSlack),
	}
}

func lapsedIsTaken(s *stage) {
	holder, heir := s.open(s.First, longTTL), s.open(s.Second, longTTL)
	g, _, p := s.lapsing(s.key("taken"), holder)
	next := s.succeed(s.Second, s.request(g.Key, heir), p)
	s.higher("a lapse", g.Token, next.Token)
	s.lost(g)
	s.refuses(next, g.Key, g.Session, g.Token)
	s.refuses(next, g.Key, g.Session, next.Token)
	s.heartbeat(s.First, holder)
	s.holdsNothing(s.First, holder)
	s.release(s.First, next)
}

func lapsedIsOver(s *stage) {
	holder, heir := s.open(s.First, longTTL), s.open(s.Second, longTTL)
	g, _, _ := s.lapsing(s.key("over"), holder)
	s.lapse(g)
	s.lost(g)
	_, err := s.handoff(s.First, g, s.request(g.Key, heir))
	s.expect("handoff of a lapsed grant", err, lock.ErrLost)
	_, err = s.revoke(s.First, g.Key, 0)
	s.expect("revocation of a lapsed grant", err, lock.ErrLost)
	for _, b := range []port.Backend{s.First, s.Second} {
		if s.end(b, g.Key, g.Session, g.Token) {
			s.Errorf("release of a lapsed grant: true, want false")
		}
	}
	s.holdsNothing(s.Second, holder)
	if n := s.close(s.First, holder.ID); n != 0 {
		s.Errorf("close counted %d grants, want 0: the only one has lapsed", n)
	}
	s.higher("a lapse", g.Token, s.hold(s.First, g.Key, heir).Token)
}

func lapsedRequest(s *stage) {
	holder := s.open(s.First, longTTL)
	g, req, _ := s.lapsing(s.key("again"), holder)
	s.lapse(g)
	if _, ok := s.settle(s.First, req); ok {
		s.Errorf("a lapsed grant settles its request")
	}
	if s.abandon(s.Second, req) {
		s.Errorf("abandon of a lapsed grant: true, want false")
	}
	s.higher("a lapse", g.Token, s.grab(s.Second, req).Token)
}
