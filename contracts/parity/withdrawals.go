package parity

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/fencelock/fencelock/core/lock"
	"github.com/fencelock/fencelock/core/port"
	"github.com/fencelock/fencelock/core/service"
)

func abandonEnds(s *stage) {
	session, other := s.open(s.First, longTTL), s.open(s.First, longTTL)
	req := s.request(s.key("abandoned"), session)
	g := s.grab(s.First, req)
	wrong, foreign, elsewhere := req, req, req
	wrong.RequestID, foreign.Session, elsewhere.Key = freshID(), other.ID, s.key("abandoned/other")
	for _, r := range []port.GrantRequest{wrong, foreign, elsewhere} {
		for _, b := range []port.Backend{s.First, s.Second} {
			if s.abandon(b, r) {
				s.Errorf("abandon of what is not the grant: true, want false")
			}
			s.holds(b, g)
		}
	}
	if !s.abandon(s.Second, req) {
		s.Errorf("abandon of the grant: false, want true")
	}
	if s.abandon(s.First, req) {
		s.Errorf("abandon of what is over: true, want false")
	}
	s.holdsNothing(s.First, session)
	next := s.hold(s.First, g.Key, other)
	s.higher("abandoning", g.Token, next.Token)
	if s.abandon(s.First, req) {
		s.Errorf("abandon when another holds: true, want false")
	}
	s.holds(s.Second, next)
}

func timedOutLeavesNothing(s *stage) {
	holder, session := s.open(s.First, longTTL), s.open(s.First, longTTL)
	server := s.serve(s.Second)
	g := s.hold(s.First, s.key("timeout"), holder)
	req := s.request(g.Key, session)
	if result, err := s.stand(server, req, 100*time.Millisecond).end("an acquire times out"); err != nil || result.Granted {
		s.Fatalf("timed out: granted %v, %v, want held", result.Granted, err)
	}
	s.withdrawn(server, req)
	s.release(s.First, g)
	s.holdsNothing(s.Second, session)
	s.hold(s.First, g.Key, holder)
}

// withdrawn abandons a request at a server, as its client does after its last attempt.
func (s *stage) withdrawn(server *service.Service, req port.GrantRequest) {
	s.Helper()
	_, err := ask(s.Context(), true, func(ctx context.Context) (bool, error) {
		return server.Abandon(ctx, req.Key, req.Session, req.RequestID)
	})
	if err != nil {
		s.Fatalf("abandon: %v", err)
	}
}

// cancelRacesGrant cancels a waiting acquire while the key is released to it.
func cancelRacesGrant(s *stage) {
	holder, session := s.open(s.First, longTTL), s.open(s.First, longTTL)
	server := s.serve(s.First)
	for round := range 12 {
		g := s.hold(s.First, s.key(fmt.Sprintf("race/%d", round)), holder)
		req := s.request(g.Key, session)
		w := s.queue(server, req)
		go w.cancel()
		ok, err := server.Release(s.Context(), g.Key, g.Session, g.Token)
		if err != nil || !ok {
			s.Fatalf("release: %v, %v", ok, err)
		}
		_, _ = w.end("a cancelled acquire returns")
		s.withdrawn(server, req)
		s.holdsNothing(s.Second, session)
		s.eventually("nobody stands in line", func() bool { return server.Status().Waiters == 0 })
		s.hold(s.Second, g.Key, holder)
	}
}

// cancelReleasesNothing: the client learned of the grant elsewhere; a call under the same
// request id that breaks off must not take it away.
func cancelReleasesNothing(s *stage) {
	session := s.open(s.First, longTTL)
	first, second := s.serve(s.First), s.serve(s.Second)
	req := s.request(s.key("known"), session)
	ctx, cancel := context.WithCancel(s.Context())
	result, err := first.Acquire(ctx, service.AcquireRequest{GrantRequest: req, Wait: time.Minute})
	if err != nil || !result.Granted {
		s.Fatalf("acquire: granted %v, %v", result.Granted, err)
	}
	cancel()
	for i, b := range []port.Backend{s.First, s.Second} {
		// Broken off before the store is asked, while it answers, and at any time.
		_, _ = b.Locks.TryInsert(ctx, req)
		s.holds(s.First, result.Grant)
		left, leave := context.WithCancel(s.Context())
		server := s.serve(tapped(b, func(int64, port.Attempt) { leave() }))
		_, _ = server.Acquire(left, service.AcquireRequest{GrantRequest: req, Wait: time.Minute})
		s.holds(s.First, result.Grant)
		broken := s.stand([]*service.Service{first, second}[i], req, time.Minute)
		broken.cancel()
		_, _ = broken.end("a broken call returns")
		s.holds(s.First, result.Grant)
	}
	first.Close()
	s.holds(s.Second, result.Grant)
	s.release(s.Second, result.Grant)
}

// lateDuplicate lets an acquire arrive again when its grant was released long ago.
func lateDuplicate(s *stage) {
	session := s.open(s.First, longTTL)
	lists := &atomic.Int64{}
	s.First.Sessions, s.Second.Sessions = lister{s.First.Sessions, lists}, lister{s.Second.Sessions, lists}
	first, second := s.serve(s.First), s.serve(s.Second)
	req := service.AcquireRequest{GrantRequest: s.request(s.key("late"), session)}
	other := s.hold(s.First, s.key("believed"), session)
	done := must[service.AcquireResult](s, "acquire")(first.Acquire(s.Context(), req))
	s.release(s.First, done.Grant)
	late := must[service.AcquireResult](s, "late duplicate")(second.Acquire(s.Context(), req))
	if !late.Granted {
		return // the store remembers the request id: there is no orphan
	}
	s.higher("release", done.Grant.Token, late.Grant.Token)
	beat := func(server *service.Service, believed ...lock.Grant) (result service.HeartbeatResult) {
		s.Helper()
		// A check that could not be made is left out, and is for the next heartbeat.
		s.eventually("a heartbeat is checked", func() bool {
			before := lists.Load()
			result = must[service.HeartbeatResult](s, "heartbeat")(ask(s.Context(), true,
				func(ctx context.Context) (service.HeartbeatResult, error) {
					return server.Heartbeat(ctx, service.HeartbeatRequest{Session: session.ID, Check: true, Digest: lock.Digest(believed)})
				}))
			return lists.Load() > before
		})
		return result
	}
	told := beat(first, other)
	if !told.Differs || len(told.Held) != 2 {
		s.Fatalf("a heartbeat that believes in 1 of 2 grants: differs %v, listed %d, want both", told.Differs, len(told.Held))
	}
	for _, g := range told.Held {
		if g.RequestID == req.RequestID && g.Key == req.Key {
			s.release(s.Second, g)
		}
	}
	if told := beat(second, other); told.Differs {
		s.Errorf("the next heartbeat still differs: %v", tokens(told.Held))
	}
	s.hold(s.First, req.Key, s.open(s.First, longTTL))
}

// lister counts the lists that it has given.
type lister struct {
	port.SessionRegistry
	given *atomic.Int64
}

// LocksOf implements port.SessionRegistry.
func (l lister) LocksOf(ctx context.Context, id lock.SessionID) ([]lock.Grant, error) {
	list, err := l.SessionRegistry.LocksOf(ctx, id)
	if err == nil {
		l.given.Add(1)
	}
	return list, err
}

// countingRegistry counts heartbeats that reach the store.
type countingRegistry struct {
	port.SessionRegistry
	beats int
}

// Heartbeat implements port.SessionRegistry.
func (c *countingRegistry) Heartbeat(ctx context.Context, id lock.SessionID) (port.Vitals, error) {
	c.beats++
	return c.SessionRegistry.Heartbeat(ctx, id)
}

// lateClock is a clock that a case moves.
type lateClock struct{ now time.Duration }

// Elapsed implements port.Clock.
func (c *lateClock) Elapsed() time.Duration { return c.now }

func staleHeartbeat(s *stage) {
	session := s.open(s.First, longTTL)
	counter := &countingRegistry{SessionRegistry: s.First.Sessions}
	b := s.First
	b.Sessions = counter
	now := &lateClock{now: time.Hour}
	server := service.New(b, service.Config{}, now, deaf{}) // not started: nothing runs beside the calls
	for _, age := range []time.Duration{1100 * time.Millisecond, 2 * time.Second, time.Minute} {
		_, err := server.Heartbeat(s.Context(), service.HeartbeatRequest{Session: session.ID, ReceivedAt: now.now - age})
		s.blip(fmt.Sprintf("heartbeat received %v ago", age), err)
	}
	if counter.beats != 0 {
		s.Errorf("%d late heartbeats reached the store", counter.beats)
	}
	fresh := service.HeartbeatRequest{Session: session.ID, ReceivedAt: now.now - 100*time.Millisecond}
	must[service.HeartbeatResult](s, "fresh heartbeat")(ask(s.Context(), true,
		func(ctx context.Context) (service.HeartbeatResult, error) { return server.Heartbeat(ctx, fresh) }))
}

// deadWhileOthersWait: a session that is over finds others in line for a held key. It must not join them:
// it would stand there for its whole wait, and a key's line could be filled with invented ids.
func deadWhileOthersWait(s *stage) {
	g := s.hold(s.First, s.key("line"), s.open(s.First, longTTL))
	server := s.serve(s.First)
	behind := s.queue(server, s.request(g.Key, s.open(s.First, longTTL)))
	killed, closed := s.open(s.First, longTTL), s.open(s.Second, longTTL)
	s.KillSession(s, killed.ID)
	s.close(s.First, closed.ID)
	for _, over := range []lock.Session{killed, closed, {ID: lock.NewSessionID()}} {
		req := s.request(g.Key, over)
		for _, b := range []port.Backend{s.First, s.Second} {
			_, err := ask(s.Context(), true, func(ctx context.Context) (ok bool, err error) {
				_, ok, err = b.Handover.Settle(ctx, req.Key, req.Session, req.RequestID)
				return ok, err
			})
			s.expect("settle of a session that is over", err, lock.ErrSessionDead)
		}
		_, err := s.stand(server, req, time.Hour).end("an acquire of a session that is over returns")
		s.expect("acquire of a session that is over, behind others", err, lock.ErrSessionDead)
	}
	s.release(s.Second, g)
	behind.granted("the live waiter")
}

// deathInQueue kills a session that stands in line, then frees the key on the
// same server (which would hand it over) and on the other.
func deathInQueue(s *stage) {
	heir := s.open(s.First, longTTL)
	for i, freeing := range []port.Backend{s.First, s.Second} {
		g := s.hold(s.First, s.key(fmt.Sprintf("queue/%d", i)), s.open(s.First, longTTL))
		server := s.serve(s.First)
		mortals := []lock.Session{s.open(s.First, longTTL), s.open(s.Second, longTTL)}
		dead := []*standing{s.queue(server, s.request(g.Key, mortals[0])), s.queue(server, s.request(g.Key, mortals[1]))}
		behind := s.queue(server, s.request(g.Key, heir))
		for _, mortal := range mortals {
			s.KillSession(s, mortal.ID)
		}
		if i == 0 {
			if ok, err := server.Release(s.Context(), g.Key, g.Session, g.Token); !ok || err != nil {
				s.Fatalf("release: %v, %v", ok, err)
			}
		} else {
			s.release(freeing, g)
		}
		next := behind.granted("the live waiter behind the dead ones")
		for _, w := range dead {
			_, err := w.end("a waiter whose session is dead returns")
			s.expect("acquire of a session that died in line", err, lock.ErrSessionDead)
		}
		s.higher("release", g.Token, next.Token)
		s.release(s.Second, next)
	}
}
