package parity

import (
	"fmt"
	"time"

	"github.com/fencelock/fencelock/core/lock"
	"github.com/fencelock/fencelock/core/port"
)

func handoffMoves(s *stage) {
	a, b := s.open(s.First, longTTL), s.open(s.Second, longTTL)
	for i, lease := range []time.Duration{0, time.Minute} {
		req := s.request(s.key(fmt.Sprintf("moves/%d", i)), a)
		req.Lease = time.Minute - lease // one has a lease and gets one without, one the reverse
		g := s.grab(s.First, req)
		to := s.request(g.Key, b)
		to.Lease, to.Metadata = lease, map[string]string{"job": "7"}
		next := must[lock.Grant](s, "handoff")(s.handoff(s.First, g, to))
		s.higher("handoff", g.Token, next.Token)
		if next.Session != b.ID || next.RequestID != to.RequestID || next.Lease != lease || (next.LeaseRemaining > 0) != (lease > 0) {
			s.Errorf("handoff made %+v, want a grant for %+v", next, to)
		}
		s.holds(s.Second, next)
		s.holdsNothing(s.Second, a)
		if got, ok := s.settle(s.Second, to); !ok || got.Token != next.Token || got.Metadata["job"] != "7" {
			s.Errorf("the new request settles to %v token %d, want token %d", ok, got.Token, next.Token)
		}
		if _, ok := s.settle(s.Second, req); ok {
			s.Errorf("the old request still settles")
		}
		s.lost(g)
		s.refuses(next, g.Key, a.ID, g.Token)
		if again := s.grab(s.First, to); again.Token != next.Token {
			s.Errorf("the new request sent again got token %d, want %d", again.Token, next.Token)
		}
		s.release(s.First, next)
	}
}

func handoffOfOver(s *stage) {
	a, b := s.open(s.First, longTTL), s.open(s.Second, longTTL)
	g := s.hold(s.First, s.key("over"), a)
	wrong := g
	wrong.Token++
	foreign := g
	foreign.Session = b.ID
	for _, from := range []lock.Grant{wrong, foreign} {
		_, err := s.handoff(s.Second, from, s.request(g.Key, b))
		s.expect("handoff of what is not the grant", err, lock.ErrLost)
		s.holds(s.Second, g)
	}
	s.release(s.First, g)
	_, err := s.handoff(s.Second, g, s.request(g.Key, b))
	s.expect("handoff of a released grant", err, lock.ErrLost)
	s.holdsNothing(s.First, b)
	if s.read(s.First, g.Key).Held {
		s.Errorf("a failed handoff made a grant")
	}
	next := s.hold(s.First, g.Key, b)
	_, err = s.handoff(s.First, g, s.request(g.Key, a))
	s.expect("handoff by a former holder", err, lock.ErrLost)
	s.holds(s.First, next)
}

func handoffToDead(s *stage) {
	a, dead := s.open(s.First, longTTL), s.open(s.First, longTTL)
	s.hold(s.First, s.key("known"), dead) // First knows the session well
	s.KillSession(s, dead.ID)
	for _, lease := range []time.Duration{0, time.Minute} {
		req := s.request(s.key("kept/"+lease.String()), a)
		req.Lease = lease
		g := s.grab(s.First, req)
		for _, b := range []port.Backend{s.First, s.Second} {
			for _, id := range []lock.SessionID{dead.ID, lock.NewSessionID()} {
				to := s.request(g.Key, lock.Session{ID: id})
				to.Lease = lease
				_, err := s.handoff(b, g, to)
				s.expect("handoff to a session that is over", err, lock.ErrSessionDead)
				s.holds(s.Second, g)
			}
		}
		if _, err := s.extend(s.First, g, 0); err != nil {
			s.Errorf("extend after a failed handoff: %v", err)
		}
		s.release(s.Second, g)
	}
}

// handoffIsAtomic passes a key between two sessions while a third tries to get it.
func handoffIsAtomic(s *stage) {
	a, b, thief := s.open(s.First, longTTL), s.open(s.Second, longTTL), s.open(s.Second, longTTL)
	key := s.key("ring")
	g := s.hold(s.First, key, a)
	stolen := make(chan bool, 1)
	passed := make(chan struct{})
	go func() { // ends when the ring has been passed, or with the case
		got := false
		for done := false; !done && !got && s.Context().Err() == nil; {
			select {
			case <-passed:
				done = true
			default:
				attempt, err := insert(s.Context(), s.Second, s.request(key, thief))
				got = err == nil && attempt.Granted
			}
		}
		stolen <- got
	}()
	for i := range 24 {
		to := []lock.Session{b, a}[i%2]
		next, err := s.handoff([]port.Backend{s.First, s.Second}[i/2%2], g, s.request(key, to))
		if err != nil {
			s.Errorf("handoff %d: %v", i, err)
			break
		}
		s.higher("handoff", g.Token, next.Token)
		g = next
	}
	close(passed)
	if <-stolen {
		s.Errorf("somebody got the key during a handoff")
	}
}

func handoffAtOnce(s *stage) {
	holder := s.open(s.First, longTTL)
	heirs := []lock.Session{s.open(s.First, longTTL), s.open(s.Second, longTTL)}
	for round := range 4 {
		g := s.hold(s.First, s.key(fmt.Sprintf("two/%d", round)), holder)
		n, complete := s.truths(6, func(_ int, b port.Backend) (bool, error) {
			to := s.request(g.Key, heirs[round%2])
			_, err := b.Handover.Handoff(s.Context(), port.GrantRef{Key: g.Key, Session: g.Session, Token: g.Token}, to)
			if lock.CodeOf(err) == lock.CodeLost {
				return false, nil
			}
			return err == nil, err
		})
		if n > 1 || n == 0 && complete {
			s.Errorf("%d of 6 handoffs of one grant succeeded, want 1", n)
		}
	}
}
