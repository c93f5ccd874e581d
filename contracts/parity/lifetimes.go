package parity

import (
	"errors"
	"time"

	"github.com/fencelock/fencelock/core/lock"
	"github.com/fencelock/fencelock/core/port"
)

const (
	// deathBound is how long after its TTL a silent session may still live (clause SESS-02).
	deathBound = 2 * time.Second
	// schedulingSlack is added to upper bounds of time, for a busy machine.
	schedulingSlack = 6 * time.Second
	// probePause is the rhythm of whoever watches a session live or die.
	probePause = 50 * time.Millisecond
)

func guaranteeIsCloseToTTL(s *stage) {
	for _, ttl := range []time.Duration{lock.DefaultTTL, lock.MaxTTL} {
		session := s.open(s.First, ttl)
		for _, b := range []port.Backend{s.First, s.Second} {
			var best time.Duration
			// A slow call may eat some of the guarantee, not all of several.
			for range 5 {
				v := s.heartbeat(b, session)
				if v.Remaining > ttl {
					s.Errorf("guaranteed %v of a TTL of %v", v.Remaining, ttl)
				}
				best = max(best, v.Remaining)
			}
			if best < ttl*8/10 {
				s.Errorf("guaranteed at best %v of a TTL of %v", best, ttl)
			}
		}
	}
}

// pulse is the last confirmed heartbeat: what it guarantees at the least, and
// when the session must be over at the latest. Both are counted so that a
// slow test can only make them weaker.
type pulse struct {
	aliveUntil time.Time // counted from before the heartbeat was sent
	deadBy     time.Time // counted from after it was answered
}

// mortal opens a session with a short life, has it take the key, and sends its last heartbeat. A machine on which that
// takes longer than the life says nothing of the store, so it is done again with another session.
func (s *stage) mortal(b port.Backend, key lock.Key) (lock.Session, lock.Grant, pulse) {
	s.Helper()
	for range 5 {
		asked := time.Now()
		session := s.open(b, shortTTL)
		a, err := insert(s.Context(), b, s.request(key, session))
		if err == nil && !a.Granted {
			s.Fatalf("acquire %s: held by token %d, want a grant", key.Name(), a.Holder.Token)
		}
		sent := time.Now()
		if err == nil {
			var v port.Vitals
			if v, err = beat(s.Context(), b, session.ID); err == nil {
				return session, a.Grant, pulseOf(session, sent, v)
			}
		}
		if lived := time.Since(asked); !errors.Is(err, lock.ErrSessionDead) || lived < session.TTL {
			s.Fatalf("acquire and heartbeat %v after a session was asked for: %v", lived, err)
		}
	}
	s.Fatalf("this machine is too slow to use a session before it ends; nothing can be said")
	return lock.Session{}, lock.Grant{}, pulse{}
}

// pulseOf is what the answer to a heartbeat sent at that time means.
func pulseOf(session lock.Session, sent time.Time, v port.Vitals) pulse {
	return pulse{
		aliveUntil: sent.Add(v.Remaining),
		deadBy:     time.Now().Add(session.TTL + deathBound + schedulingSlack),
	}
}

// succeed tries key for heir until it is granted, and judges the moment.
func (s *stage) succeed(b port.Backend, req port.GrantRequest, p pulse) lock.Grant {
	s.Helper()
	for {
		sent := time.Now()
		if a := s.try(b, req); a.Granted {
			if early := time.Until(p.aliveUntil); early > 0 {
				s.Errorf("the lock was free %v before the guarantee of its session ended", early)
			}
			return a.Grant
		}
		if sent.After(p.deadBy) {
			s.Fatalf("the lock is held later than its session's TTL + %v (+ %v slack)", deathBound, schedulingSlack)
		}
		s.breathe(probePause)
	}
}

// deadEverywhere asks all clients, which must agree at once.
func (s *stage) deadEverywhere(session lock.Session, backends ...port.Backend) {
	s.Helper()
	for _, b := range backends {
		_, err := beat(s.Context(), b, session.ID)
		s.expect("heartbeat after the lock went to another", err, lock.ErrSessionDead)
		_, err = held(s.Context(), b, session.ID)
		s.expect("locks after the lock went to another", err, lock.ErrSessionDead)
	}
}

func diesInTime(s *stage) {
	heir := s.open(s.Second, longTTL)
	silent, g, p := s.mortal(s.First, s.key("silent"))
	next := s.succeed(s.Second, s.request(g.Key, heir), p)
	s.higher("the death of the holder", g.Token, next.Token)
	s.deadEverywhere(silent, s.First, s.Second)
}

func heartbeatMovesTheEnd(s *stage) {
	for range 3 {
		if s.renewedPastTTL() {
			return
		}
	}
	s.Fatalf("this machine stalled for whole guarantees; nothing can be said")
}

// renewedPastTTL keeps a session alive for longer than its TTL and then lets it die.
// It returns false if the test itself was too slow to keep it alive.
func (s *stage) renewedPastTTL() bool {
	s.Helper()
	heir := s.open(s.Second, longTTL)
	session, g, p := s.mortal(s.First, s.key("renewed"))
	opened := time.Now()
	for time.Since(opened) < shortTTL*5/4 {
		s.breathe(shortTTL / 8)
		sent := time.Now()
		v, err := beat(s.Context(), s.Second, session.ID)
		if errors.Is(err, lock.ErrSessionDead) && time.Now().After(p.aliveUntil) {
			return false
		}
		if err != nil {
			s.Fatalf("heartbeat within the guarantee: %v", err)
		}
		p = pulseOf(session, sent, v)
	}
	s.succeed(s.First, s.request(g.Key, heir), p)
	return true
}

func diesInTimeWithItsServer(s *stage) {
	heir := s.open(s.Second, longTTL)
	orphan, g, p := s.mortal(s.First, s.key("orphan"))
	s.Stop(s)
	s.succeed(s.Second, s.request(g.Key, heir), p)
	s.deadEverywhere(orphan, s.Second)
}

func silentDies(s *stage) {
	busy := s.open(s.First, longTTL)
	silent, _, p := s.mortal(s.First, s.key("silent"))
	req := s.request(s.key("leased"), silent)
	req.Lease = time.Minute
	for {
		s.heartbeat(s.First, busy)
		sent := time.Now()
		_, err := held(s.Context(), s.First, silent.ID)
		if errors.Is(err, lock.ErrSessionDead) {
			return
		}
		a, err := insert(s.Context(), s.First, req)
		if err == nil {
			_, err = s.extend(s.First, a.Grant, time.Minute)
		}
		if err != nil && !errors.Is(err, lock.ErrSessionDead) && !errors.Is(err, lock.ErrLost) {
			s.Fatalf("ask for a silent session: %v", err)
		}
		if sent.After(p.deadBy) {
			s.Fatalf("a session without heartbeats lives on")
		}
		s.breathe(probePause)
	}
}

func anyServerServes(s *stage) {
	session := s.open(s.First, longTTL)
	a, b := s.hold(s.First, s.key("a"), session), s.hold(s.Second, s.key("b"), session)
	for _, backend := range []port.Backend{s.Second, s.First, s.Second} {
		s.heartbeat(backend, session)
		s.holds(backend, a)
		s.holds(backend, b)
	}
	s.release(s.Second, a)
	s.release(s.First, b)
	if n := s.close(s.Second, session.ID); n != 0 {
		s.Errorf("close returned %d, want 0", n)
	}
}

func outlivesItsServer(s *stage) {
	began := time.Now()
	s.heartbeat(s.Second, s.open(s.First, longTTL))
	// A few seconds, and more where calls take so long that they could miss that.
	ttl := min(max(4*time.Second, (20*time.Since(began)).Truncate(time.Second)), time.Minute)
	session := s.open(s.First, ttl)
	g := s.hold(s.First, s.key("survivor"), session)
	s.heartbeat(s.First, session)
	s.Stop(s)
	stopped := time.Now()
	// Whatever the dead server did for the session runs out within its TTL.
	for time.Since(stopped) < ttl+ttl/8 {
		s.heartbeat(s.Second, session)
		s.holds(s.Second, g)
		s.breathe(ttl / 10)
	}
	s.holds(s.Second, g)
	s.release(s.Second, g)
}
