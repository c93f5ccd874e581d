package client

import (
	"context"
	"math/rand/v2"
	"time"

	v1 "github.com/fencelock/fencelock/contracts/api/fencelock/v1"
	"github.com/fencelock/fencelock/core/lock"
)

const (
	// beatsPerDeadline is how many heartbeats fit into the usable time of a guarantee.
	beatsPerDeadline = 3
	// triesPerDeadline divides the usable time into the patience for one heartbeat,
	// so that two silent tries leave time for a third.
	triesPerDeadline = 4
	// minBeatGap keeps the smallest distance of two heartbeats.
	minBeatGap = 10 * time.Millisecond
	// checkEvery is how often the clock is compared with what is due even if nothing
	// should be: timers stand still while the machine is suspended.
	checkEvery = time.Second
	// digestEvery is how many heartbeats pass between two that ask for what is
	// held without a reason.
	digestEvery = 10
)

// poke makes the keepalive send a heartbeat now.
func (s *Session) poke() { signal(s.beat) }

func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// keepAlive sends heartbeats, one in flight, until the session is over.
func (s *Session) keepAlive() {
	for count := 1; s.untilBeat(); count++ {
		if !s.renewal(count%digestEvery == 0) {
			return
		}
	}
}

// untilBeat waits for the time of the next heartbeat, or a poke: a third of the usable time from
// the last heartbeat that was answered, less some jitter. It returns false once the session is over.
func (s *Session) untilBeat() bool {
	s.mu.Lock()
	third := (s.deadline - s.sent) / beatsPerDeadline
	due := s.sent + third - rand.N(third/8+1) //nolint:gosec // jitter is no secret
	s.mu.Unlock()
	due = max(due, s.client.now()+minBeatGap)
	for s.client.now() < due {
		timer := time.NewTimer(min(checkEvery, due-s.client.now()))
		select {
		case <-s.ctx.Done():
			timer.Stop()
			return false
		case <-s.beat:
			timer.Stop()
			return true
		case <-timer.C:
		}
	}
	return true
}

// renewal tries until one heartbeat is answered. It returns false once the
// session is over.
func (s *Session) renewal(check bool) bool {
	usableTime := usable(s.ttl, s.client.cfg.margin)
	wait := backoff{base: retryBase, most: max(retryBase, usableTime/(2*triesPerDeadline))}
	for try := 0; ; try++ {
		err := s.tryBeat(usableTime/triesPerDeadline, try, check)
		if err == nil {
			return s.ctx.Err() == nil
		}
		if lock.CodeOf(err) == lock.CodeSessionDead {
			s.end(&lock.Error{Code: lock.CodeSessionDead, Message: "the session is dead", Cause: err}, false)
			return false
		}
		s.mu.Lock()
		s.failing = true
		s.mu.Unlock()
		if pause(s.ctx, wait.next(0)) != nil {
			return false
		}
	}
}

// tryBeat sends one heartbeat. The first try goes over the stream; later ones
// go as unary calls over connections of their own, to the next endpoint.
func (s *Session) tryBeat(patience time.Duration, try int, check bool) error {
	stream := s.client.link.current()
	via := stream
	if try > 0 {
		via = nil
	}
	req := &v1.HeartbeatRequest{SessionId: s.id.Reveal()}
	believed := s.believed(via == nil, check, req)
	sent := s.client.now()
	var resp *v1.HeartbeatResponse
	err := s.client.try(s.ctx, patience, func(ctx context.Context) (err error) {
		resp, err = s.client.heartbeat(ctx, via, req)
		return err
	})
	switch {
	case err != nil && via != nil && lock.CodeOf(err) != lock.CodeSessionDead && s.ctx.Err() == nil:
		s.client.link.failed(via, sent)
	case err == nil && via == nil && stream != nil:
		s.client.link.outdone(stream)
	}
	if err != nil {
		return err
	}
	s.renew(sent, resp.GetRemaining().AsDuration(), req.HeldDigest != nil)
	if resp.GetHeld() != nil {
		s.reconcile(believed, resp.GetHeld().GetGrants())
	}
	return nil
}

// renew takes an answer that says how long the session is guaranteed from sent
// on; asked says that the heartbeat asked for what is held.
func (s *Session) renew(sent, guaranteed time.Duration, asked bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.expired() != nil {
		return // the answer came too late: loss has been or is hereby declared, for good
	}
	cfg := s.client.cfg
	s.sent = sent
	s.deadline = cfg.reckon(sent, s.client.now(), within(guaranteed, s.ttl), cfg.margin)
	s.failing = false
	s.ask = s.ask && !asked
	signal(s.kick)
}

// watch declares losses when they are due, and tells of the session's.
func (s *Session) watch() {
	for s.ctx.Err() == nil {
		timer := time.NewTimer(s.check())
		select {
		case <-s.ctx.Done():
		case <-s.kick:
		case <-timer.C:
		}
		timer.Stop()
	}
	s.client.forget(s)
	s.mu.Lock()
	over, quiet, lost := s.over, s.quiet, s.lost
	s.lost = nil
	s.mu.Unlock()
	if quiet {
		return
	}
	for _, f := range lost {
		f(over)
	}
}

// check declares what is due and returns the pause before the next check.
func (s *Session) check() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.expired() != nil {
		return 0
	}
	now := s.client.now()
	next := min(checkEvery, s.deadline-now)
	for _, l := range s.locks {
		if l.expired() == nil && l.deadline > 0 {
			next = min(next, l.deadline-now)
		}
	}
	return next
}
