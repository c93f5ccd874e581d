package parity

import (
	"slices"
	"sync"
	"time"

	"github.com/fencelock/fencelock/core/lock"
	"github.com/fencelock/fencelock/core/port"
)

func tokensOverCycles(s *stage) {
	a, b := s.open(s.First, longTTL), s.open(s.Second, longTTL)
	key := s.key("cycle")
	var last lock.Token
	for i := range 12 {
		session, at, by := a, s.First, s.Second
		if i%2 == 1 {
			session, at, by = b, s.Second, s.First
		}
		g := s.hold(at, key, session)
		if err := lock.CheckToken(g.Token); err != nil {
			s.Fatalf("token %d: %v", g.Token, err)
		}
		s.higher("release", last, g.Token)
		last = g.Token
		// The same server twice in a row, and the other one, release it.
		if i%3 == 0 {
			by = at
		}
		s.release(by, g)
	}
}

func tokensOverRevocation(s *stage) {
	session := s.open(s.First, longTTL)
	key := s.key("revoked")
	var last lock.Token
	for i := range 4 {
		b := []port.Backend{s.First, s.Second}[i%2]
		g := s.hold(b, key, session)
		s.higher("revocation", last, g.Token)
		r := must[lock.Revocation](s, "revoke")(s.revoke(s.First, key, 0))
		last = r.Floor
	}
}

func tokensOverDeath(s *stage) {
	key := s.key("mortal")
	var last lock.Token
	for i := range 6 {
		session := s.open(s.First, longTTL)
		g := s.hold(s.Second, key, session)
		s.higher("the end of a session", last, g.Token)
		last = g.Token
		if i%2 == 0 {
			s.KillSession(s, session.ID)
		} else {
			s.close(s.First, session.ID)
		}
	}
}

func tokensOverServerLoss(s *stage) {
	session := s.open(s.First, longTTL)
	released, kept := s.hold(s.First, s.key("released"), session), s.hold(s.First, s.key("kept"), session)
	s.release(s.First, released)
	s.Stop(s)
	s.higher("the loss of a server", released.Token, s.hold(s.Second, released.Key, session).Token)
	s.holds(s.Second, kept)
	s.release(s.Second, kept)
	s.higher("the loss of a server", kept.Token, s.hold(s.Second, kept.Key, session).Token)
}

func tokensOverRaisedFloor(s *stage) {
	session := s.open(s.First, longTTL)
	g := s.hold(s.First, s.key("floor"), session)
	other := s.hold(s.Second, s.key("other"), session)
	above := max(g.Token, other.Token) + 1_000_000
	req := port.FloorRequest{Above: above, Operator: "operator", Reason: "parity suite"}
	raised := must[port.FloorRaised](s, "raise floor")(s.First.Custodian.RaiseFloor(s.Context(), req))
	if raised.Floor < above || raised.EndedGrants != 2 {
		s.Errorf("raised to %d and ended %d grants, want at least %d and 2", raised.Floor, raised.EndedGrants, above)
	}
	for _, old := range []lock.Grant{g, other} {
		_, err := s.extend(s.Second, old, 0)
		s.expect("extend of a grant from before the floor", err, lock.ErrLost)
		if s.end(s.Second, old.Key, old.Session, old.Token) {
			s.Errorf("release of a grant from before the floor: true, want false")
		}
		next := s.hold(s.Second, old.Key, session)
		s.higher("a raised floor", raised.Floor, next.Token)
		s.release(s.First, next)
		s.higher("a raised floor", next.Token, s.hold(s.First, old.Key, session).Token)
	}
}

func extendKeepsToken(s *stage) {
	session := s.open(s.First, longTTL)
	for _, lease := range []time.Duration{0, time.Minute} {
		req := s.request(s.key("kept/"+lease.String()), session)
		req.Lease = lease
		g := s.grab(s.First, req)
		for i := range 4 {
			b := []port.Backend{s.First, s.Second}[i%2]
			got := must[lock.Grant](s, "extend")(s.extend(b, g, 2*time.Minute))
			if got.Token != g.Token || got.Key != g.Key || got.Session != g.Session || got.RequestID != g.RequestID {
				s.Errorf("extended grant is %+v, want %+v", got, g)
			}
			s.heartbeat(b, session)
			s.holds(b, g)
			if again := s.grab(b, req); again.Token != g.Token {
				s.Errorf("token is %d after extending, want %d", again.Token, g.Token)
			}
		}
		s.release(s.Second, g)
	}
}

func sameRequestSameGrant(s *stage) {
	session := s.open(s.First, longTTL)
	for _, lease := range []time.Duration{0, time.Minute} {
		req := s.request(s.key("again/"+lease.String()), session)
		req.Lease, req.Metadata = lease, map[string]string{"job": "7"}
		g := s.grab(s.First, req)
		if g.Key != req.Key || g.Session != session.ID || g.RequestID != req.RequestID || g.Owner != session.Owner {
			s.Errorf("grant is %+v, want what was asked", g)
		}
		if g.Lease != lease || (g.LeaseRemaining > 0) != (lease > 0) || g.LeaseRemaining > lease || g.AcquiredAt.IsZero() {
			s.Errorf("grant has lease %v, remaining %v, acquired at %v, want lease %v", g.Lease, g.LeaseRemaining, g.AcquiredAt, lease)
		}
		for _, b := range []port.Backend{s.Second, s.First} {
			again := s.grab(b, req)
			if again.Token != g.Token || again.Metadata["job"] != "7" || again.Lease != lease {
				s.Errorf("the same request got %+v, want %+v", again, g)
			}
		}
	}
	if n := len(s.locksOf(s.First, session)); n != 2 {
		s.Errorf("two requests, each sent three times, made %d grants", n)
	}
}

func sessionDoesNotReenter(s *stage) {
	session := s.open(s.First, longTTL)
	g := s.hold(s.First, s.key("once"), session)
	for _, b := range []port.Backend{s.First, s.Second} {
		if h := s.blocked(b, s.request(g.Key, session)); h.Token != g.Token || h.Session != session.ID {
			s.Errorf("held by token %d of %v, want by the session's own token %d", h.Token, h.Session, g.Token)
		}
	}
	s.holds(s.Second, g)
}

func requestIDScope(s *stage) {
	a, b := s.open(s.First, longTTL), s.open(s.First, longTTL)
	req := s.request(s.key("scoped"), a)
	g := s.grab(s.First, req)
	foreign := req
	foreign.Session = b.ID
	if h := s.blocked(s.First, foreign); h.Session != a.ID {
		s.Errorf("another session's same request id is held by %v, want by %v", h.Session, a.ID)
	}
	elsewhere := req
	elsewhere.Key = s.key("scoped/other")
	s.grab(s.Second, elsewhere)
	s.release(s.Second, g)
	// Once the grant is over the id names nothing: what it makes now is a new grant.
	if again := s.grab(s.First, req); again.Token <= g.Token {
		s.Errorf("a request whose grant is over got token %d, want above %d", again.Token, g.Token)
	}
}

// atOnce makes n attempts at once, alternating between the clients.
func (s *stage) atOnce(n int, request func(i int) port.GrantRequest) []port.Attempt {
	s.Helper()
	attempts, errs := make([]port.Attempt, n), make([]error, n)
	var group sync.WaitGroup
	for i := range n {
		b, req := []port.Backend{s.First, s.Second}[i%2], request(i)
		group.Go(func() { attempts[i], errs[i] = insert(s.Context(), b, req) })
	}
	group.Wait()
	for _, err := range errs {
		if err != nil {
			s.Fatalf("acquire: %v", err)
		}
	}
	return attempts
}

func sameRequestAtOnce(s *stage) {
	session := s.open(s.First, longTTL)
	for _, name := range []string{"a", "b", "c", "d"} {
		req := s.request(s.key(name), session)
		attempts := s.atOnce(8, func(int) port.GrantRequest { return req })
		for _, a := range attempts {
			if !a.Granted || a.Grant.Token != attempts[0].Grant.Token {
				s.Errorf("the same request at once: granted %v token %d, want token %d", a.Granted, a.Grant.Token, attempts[0].Grant.Token)
			}
		}
		s.holds(s.Second, attempts[0].Grant)
	}
}

func oneSessionAtOnce(s *stage) {
	session := s.open(s.First, longTTL)
	for _, name := range []string{"a", "b", "c", "d"} {
		key := s.key(name)
		attempts := s.atOnce(8, func(int) port.GrantRequest { return s.request(key, session) })
		if n := granted(attempts); n != 1 {
			s.Errorf("8 requests of one session made %d grants, want 1", n)
		}
	}
}

func granted(attempts []port.Attempt) (n int) {
	for _, a := range attempts {
		if a.Granted {
			n++
		}
	}
	return n
}

func heldSaysWho(s *stage) {
	holder, other := s.open(s.First, shortTTL*10), s.open(s.First, longTTL)
	g := s.hold(s.First, s.key("who"), holder)
	for _, b := range []port.Backend{s.Second, s.First} {
		s.names(s.blocked(b, s.request(g.Key, other)), g, shortTTL*10)
	}
	req := s.request(g.Key, other)
	req.Lease = time.Minute
	next := must[lock.Grant](s, "handoff")(s.handoff(s.First, g, req))
	s.names(s.blocked(s.Second, s.request(g.Key, holder)), next, time.Minute)
}

// names fails the case unless h is the holder of g, free within at most the
// given time and what a store may need to notice.
func (s *stage) names(h lock.Holder, g lock.Grant, within time.Duration) {
	s.Helper()
	if h.Owner != g.Owner || h.Session != g.Session || h.Token != g.Token {
		s.Errorf("held by token %d of %q, %v, want token %d of %q, %v", h.Token, h.Owner, h.Session, g.Token, g.Owner, g.Session)
	}
	if d := h.AcquiredAt.Sub(g.AcquiredAt).Abs(); d > time.Millisecond {
		s.Errorf("held since %v, want %v", h.AcquiredAt, g.AcquiredAt)
	}
	if h.FreeWithin < 0 || h.FreeWithin > within+deathBound {
		s.Errorf("free within %v, want unknown or at most %v", h.FreeWithin, within)
	}
}

func readIsPlausible(s *stage) {
	session := s.open(s.First, longTTL)
	key := s.key("read")
	if info := s.read(s.First, key); info.Held || info.Key != key || info.Floor != 0 || info.Grant.Token != 0 {
		s.Errorf("a key that was never used reads %+v", info)
	}
	req := s.request(key, session)
	req.Lease, req.Metadata = time.Minute, map[string]string{"job": "7"}
	g := s.grab(s.First, req)
	s.eventually("a read shows the grant", func() bool { return s.read(s.Second, key).Held })
	info := s.read(s.Second, key)
	same := info.Grant.Token == g.Token && info.Grant.Owner == session.Owner && info.Grant.Session == session.ID
	if !same || info.Grant.Metadata["job"] != "7" || info.Grant.LeaseRemaining <= 0 || info.Grant.LeaseRemaining > time.Minute {
		s.Errorf("read %+v, want %+v", info.Grant, g)
	}
	s.release(s.Second, g)
	s.eventually("a read shows the key free", func() bool { return !s.read(s.First, key).Held })
	if list := must[[]lock.Grant](s, "list")(listed(s.Context(), s.First, "read")); slices.ContainsFunc(list,
		func(l lock.Grant) bool { return l.Key == key }) {
		s.Errorf("a released key is listed")
	}
}
