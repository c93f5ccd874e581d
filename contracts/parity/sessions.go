package parity

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/fencelock/fencelock/core/lock"
	"github.com/fencelock/fencelock/core/port"
)

func idsAreUnguessable(s *stage) {
	const n = 48
	var ones [128]int
	seen := map[lock.SessionID]bool{}
	for i := range n {
		id := s.open([]port.Backend{s.First, s.Second}[i%2], longTTL).ID
		if _, err := lock.ParseSessionID(id.Reveal()); err != nil {
			s.Fatalf("session id is malformed: %v", err)
		}
		if seen[id] {
			s.Fatalf("two sessions have the same id")
		}
		seen[id] = true
		for bit := range ones {
			digit := id.Reveal()[bit/4]
			value := digit - '0'
			if digit >= 'a' {
				value = digit - 'a' + 10
			}
			ones[bit] += int(value>>(bit%4)) & 1
		}
	}
	// A bit that is random stays the same over 48 ids once in 2^47 runs.
	for bit, count := range ones {
		if count == 0 || count == n {
			s.Errorf("bit %d is the same in all %d ids: fewer than 128 random bits", bit, n)
		}
	}
}

func grantedTTL(s *stage) {
	for _, ttl := range []time.Duration{lock.MinTTL, 3 * time.Second, lock.DefaultTTL, lock.MaxTTL} {
		session := s.open(s.First, ttl)
		if session.TTL != ttl {
			s.Errorf("session TTL %v, want %v", session.TTL, ttl)
		}
		if session.Owner != "worker" || session.CreatedAt.IsZero() {
			s.Errorf("session is %v of %q, want an owner and a creation time", session.CreatedAt, session.Owner)
		}
		if v := s.heartbeat(s.Second, session); v.TTL != ttl || v.Remaining <= 0 || v.Remaining > ttl {
			s.Errorf("heartbeat of a session with TTL %v: remaining %v, TTL %v", ttl, v.Remaining, v.TTL)
		}
	}
}

func sessionIsListed(s *stage) {
	req := port.OpenRequest{Owner: "ops ü", TTL: longTTL, Metadata: map[string]string{"pod": "a-1", "empty": ""}}
	session := must[lock.Session](s, "open")(s.First.Sessions.OpenSession(s.Context(), req))
	list := must[[]lock.Session](s, "list sessions")(ask(s.Context(), true, func(ctx context.Context) ([]lock.Session, error) {
		list, _, err := s.Second.Catalog.Sessions(ctx, port.Page{Size: port.MaxPageSize})
		return list, err
	}))
	i := slices.IndexFunc(list, func(l lock.Session) bool { return l.ID == session.ID })
	if i < 0 {
		s.Fatalf("the session is not listed")
	}
	got := list[i]
	if got.Owner != req.Owner || got.TTL != req.TTL || len(got.Metadata) != 2 || got.Metadata["pod"] != "a-1" {
		s.Errorf("listed session is %q TTL %v metadata %v", got.Owner, got.TTL, got.Metadata)
	}
}

func deadIsTerminal(s *stage) {
	session := s.open(s.First, longTTL)
	g := s.hold(s.First, s.key("dead"), session)
	s.heartbeat(s.Second, session)
	s.KillSession(s, session.ID)
	s.answersDead(session, g)
	s.answersDead(session, g)
}

func unknownIsDead(s *stage) {
	other := s.open(s.First, longTTL)
	g := s.hold(s.First, s.key("unknown"), other)
	s.answersDead(lock.Session{ID: lock.NewSessionID()}, g)
	s.holds(s.Second, g)
}

// answersDead asks everything that a dead session can ask, on both clients. g
// is some grant.
func (s *stage) answersDead(session lock.Session, g lock.Grant) {
	s.Helper()
	for _, b := range []port.Backend{s.Second, s.First} {
		_, err := beat(s.Context(), b, session.ID)
		s.expect("heartbeat of a dead session", err, lock.ErrSessionDead)
		_, err = held(s.Context(), b, session.ID)
		s.expect("locks of a dead session", err, lock.ErrSessionDead)
		_, err = insert(s.Context(), b, s.request(s.key("free"), session))
		s.expect("acquire of a free key by a dead session", err, lock.ErrSessionDead)
		_, err = insert(s.Context(), b, s.request(g.Key, session))
		s.expect("acquire by a dead session", err, lock.ErrSessionDead)
		g.Session = session.ID
		_, err = s.extend(b, g, 0)
		s.expect("extend by a dead session", err, lock.ErrSessionDead)
		if s.end(b, g.Key, session.ID, g.Token) {
			s.Errorf("release by a dead session: true, want false")
		}
		if s.abandon(b, s.request(g.Key, session)) {
			s.Errorf("abandon by a dead session: true, want false")
		}
	}
}

func malformedID(s *stage) {
	good := lock.NewSessionID().Reveal()
	for _, text := range []string{"", "x", good[1:], good + "0", "G" + good[1:], "A" + good[1:], " " + good[1:]} {
		_, err := lock.ParseSessionID(text)
		s.expect("parse a malformed session id", err, lock.ErrInvalid)
	}
}

func deathFreesAll(s *stage) {
	session := s.open(s.First, longTTL)
	grants := s.several(session, 5)
	s.KillSession(s, session.ID)
	list := must[[]lock.Grant](s, "list")(listed(s.Context(), s.Second, "many/"))
	if len(list) != 0 {
		s.Errorf("a prefix read after the death shows %d grants, want none", len(list))
	}
	heir := s.open(s.First, longTTL)
	for i, g := range grants {
		if s.read(s.Second, g.Key).Held {
			s.Errorf("%s is held after the death of its session", g.Key.Name())
		}
		next := s.hold([]port.Backend{s.First, s.Second}[i%2], g.Key, heir)
		s.higher("the death of the holder", g.Token, next.Token)
	}
}

// several acquires n keys under many/, every other one with a lease.
func (s *stage) several(session lock.Session, n int) []lock.Grant {
	s.Helper()
	var grants []lock.Grant
	for i := range n {
		req := s.request(s.key("many/"+string(rune('a'+i))), session)
		if i%2 == 1 {
			req.Lease = time.Minute
		}
		grants = append(grants, s.grab(s.First, req))
	}
	return grants
}

func deathIsOneStep(s *stage) {
	s.allOrNone(func(session lock.Session) { s.KillSession(s, session.ID) })
}

func closeIsOneStep(s *stage) {
	s.allOrNone(func(session lock.Session) { s.close(s.First, session.ID) })
}

// allOrNone lists a session's locks over and over while the session ends.
func (s *stage) allOrNone(end func(lock.Session)) {
	s.Helper()
	const n = 12
	session := s.open(s.First, longTTL)
	s.several(session, n)
	ctx, cancel := context.WithTimeout(s.Context(), patience)
	defer cancel()
	started, seen := make(chan struct{}), make(chan []int, 1)
	go func() { // ends when nothing is listed any more, or with ctx
		var counts []int
		defer func() { seen <- counts }()
		for ctx.Err() == nil && (len(counts) == 0 || counts[len(counts)-1] > 0) {
			list, err := listed(ctx, s.Second, "many/")
			if err != nil {
				return
			}
			if counts = append(counts, len(list)); len(counts) == 1 {
				close(started)
			}
		}
	}()
	s.await(started, "the first listing")
	end(session)
	last := n
	for _, last = range <-seen {
		if last != 0 && last != n {
			s.Errorf("a listing shows %d of the %d locks of an ending session", last, n)
		}
	}
	if last != 0 {
		s.Errorf("the session has ended, %d of its locks are listed", last)
	}
}

func closeCounts(s *stage) {
	session := s.open(s.First, longTTL)
	grants := s.several(session, 4)
	s.release(s.Second, grants[0])
	if n := s.close(s.Second, session.ID); n != 3 {
		s.Errorf("first close returned %d, want 3", n)
	}
	for _, b := range []port.Backend{s.Second, s.First} {
		if n := s.close(b, session.ID); n != 0 {
			s.Errorf("another close returned %d, want 0", n)
		}
		_, err := beat(s.Context(), b, session.ID)
		s.expect("heartbeat after close", err, lock.ErrSessionDead)
	}
	heir := s.open(s.First, longTTL)
	for _, g := range grants {
		s.higher("close", g.Token, s.hold(s.First, g.Key, heir).Token)
	}
	if n := s.close(s.First, s.open(s.First, longTTL).ID); n != 0 {
		s.Errorf("close of a session without locks returned %d, want 0", n)
	}
}

func closeOfDead(s *stage) {
	session := s.open(s.First, longTTL)
	s.several(session, 2)
	s.KillSession(s, session.ID)
	for _, id := range []lock.SessionID{session.ID, lock.NewSessionID()} {
		if n := s.close(s.First, id); n != 0 {
			s.Errorf("close of a session that is over returned %d, want 0", n)
		}
	}
}

func locksOfIsFresh(s *stage) {
	a, b := s.open(s.First, longTTL), s.open(s.Second, longTTL)
	key := s.key("fresh")
	for range 10 {
		g := s.hold(s.First, key, a)
		s.holds(s.Second, g)
		next := must[lock.Grant](s, "handoff")(s.handoff(s.First, g, s.request(key, b)))
		s.holds(s.Second, next)
		s.holdsNothing(s.Second, a)
		s.release(s.Second, next)
		s.holdsNothing(s.First, b)
		g = s.hold(s.Second, key, a)
		s.holds(s.First, g)
		if _, err := s.revoke(s.First, key, g.Token); err != nil {
			s.Fatalf("revoke: %v", err)
		}
		s.holdsNothing(s.Second, a)
	}
}

// holdsNothing fails the case if the session's list is not empty.
func (s *stage) holdsNothing(b port.Backend, session lock.Session) {
	s.Helper()
	if list := s.locksOf(b, session); len(list) != 0 {
		s.Errorf("the session is said to hold tokens %v, want none", tokens(list))
	}
}

func locksOfIsComplete(s *stage) {
	session, other := s.open(s.First, longTTL), s.open(s.First, longTTL)
	s.holdsNothing(s.First, session)
	s.hold(s.First, s.key("m"), other)
	var want []lock.Grant
	for _, name := range []string{"z", "a", "a/b", "a-b", "A"} {
		req := s.request(s.key(name), session)
		req.Metadata = map[string]string{"of": name}
		want = append(want, s.grab(s.First, req))
	}
	slices.SortFunc(want, func(a, b lock.Grant) int { return strings.Compare(a.Key.String(), b.Key.String()) })
	got := s.locksOf(s.Second, session)
	if len(got) != len(want) {
		s.Fatalf("listed %d grants, want %d", len(got), len(want))
	}
	for i, w := range want {
		g := got[i]
		same := g.Key == w.Key && g.Session == w.Session && g.Token == w.Token && g.RequestID == w.RequestID
		if !same || g.Owner != session.Owner || g.Metadata["of"] != w.Key.Name() {
			s.Errorf("grant %d is %+v, want %+v", i, g, w)
		}
	}
}

func unreachableIsNeither(s *stage) {
	session := s.open(s.First, longTTL)
	s.heartbeat(s.First, session)
	heal := s.Partition(s)
	ctx, cancel := s.cut()
	defer cancel()
	v, err := s.First.Sessions.Heartbeat(ctx, session.ID)
	switch {
	case err != nil:
		s.blip("heartbeat", err)
	case v.Remaining > longTTL:
		s.Errorf("a store that cannot be asked guaranteed %v", v.Remaining)
	}
	stranger := lock.NewSessionID()
	_, err = s.First.Sessions.Heartbeat(ctx, stranger)
	s.blip("heartbeat of an unknown session", err)
	heal()
	s.heartbeat(s.First, session)
	_, err = beat(s.Context(), s.First, stranger)
	s.expect("heartbeat of an unknown session", err, lock.ErrSessionDead)
}

// blip fails the case unless err is what a caller gets from a store that
// cannot be asked: retryable, and neither lost nor dead nor held.
func (s *stage) blip(what string, err error) {
	s.Helper()
	if code := lock.CodeOf(err); code != lock.CodeContention && code != lock.CodeNotLeader {
		s.Errorf("%s: got %v, want a retryable error", what, err)
	}
}

func killedGetsNothing(s *stage) {
	session := s.open(s.First, longTTL)
	s.hold(s.First, s.key("before"), session)
	s.hold(s.Second, s.key("before/second"), session)
	s.KillSession(s, session.ID)
	s.getsNothing(session.ID)
}

func closedGetsNothing(s *stage) {
	session := s.open(s.First, longTTL)
	s.hold(s.First, s.key("before"), session)
	s.close(s.Second, session.ID)
	s.getsNothing(session.ID)
}

func unknownGetsNothing(s *stage) { s.getsNothing(lock.NewSessionID()) }

// getsNothing tries free keys for a session that is over, on both clients, and
// sees that nothing stands there.
func (s *stage) getsNothing(id lock.SessionID) {
	s.Helper()
	heir := s.open(s.First, longTTL)
	for i, b := range []port.Backend{s.First, s.Second} {
		for _, lease := range []time.Duration{0, time.Minute} {
			req := s.request(s.key("nothing/"+string(rune('a'+i))), lock.Session{ID: id})
			req.Lease = lease
			_, err := insert(s.Context(), b, req)
			s.expect("acquire by a session that is over", err, lock.ErrSessionDead)
			if s.read(s.Second, req.Key).Held {
				s.Errorf("%s is held by a session that is over", req.Key.Name())
			}
			s.release(b, s.hold(b, req.Key, heir))
		}
	}
}

func retryAfterDeath(s *stage) {
	session := s.open(s.First, longTTL)
	req := s.request(s.key("retry"), session)
	s.grab(s.First, req)
	s.KillSession(s, session.ID)
	for _, b := range []port.Backend{s.First, s.Second} {
		_, err := insert(s.Context(), b, req)
		s.expect("the same request after the death", err, lock.ErrSessionDead)
	}
}

func deathRacesAttempt(s *stage) {
	heir := s.open(s.Second, longTTL)
	for round := range 12 {
		session := s.open(s.First, longTTL)
		key := s.key(fmt.Sprintf("race/%d", round))
		errs := make(chan error, 2)
		for _, b := range []port.Backend{s.First, s.Second} {
			req := s.request(s.key(key.Name()), session)
			go func() { // ends with the case's context
				_, err := insert(s.Context(), b, req)
				for err == nil && s.Context().Err() == nil {
					_, err = insert(s.Context(), b, req)
				}
				errs <- err
			}()
		}
		s.KillSession(s, session.ID)
		for range 2 {
			s.expect("acquire that outlives its session", <-errs, lock.ErrSessionDead)
		}
		if s.read(s.Second, key).Held {
			s.Fatalf("a session that died during the attempt holds the key")
		}
		s.hold(s.Second, key, heir)
	}
}
