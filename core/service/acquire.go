package service

import (
	"context"
	"time"

	"github.com/fencelock/fencelock/core/lock"
	"github.com/fencelock/fencelock/core/port"
)

// Acquire asks for a grant and stands in line for at most req.Wait if the key is held: granted or
// held is the outcome, and an error means that neither is known. A request id makes it safe to
// call again: the same session, key and id get the same grant, or take over the place in line.
//
// Errors: [lock.ErrInvalid], [lock.ErrSessionDead], [lock.ErrTooManyWaiters], [lock.ErrUnsafeStore],
// and retryable [lock.ErrContention] and [lock.ErrNotLeader], which are ambiguous where a
// grant may have been made. A caller that leaves gets the error of its context as their cause;
// nothing is released then, since the client may have learned of a grant elsewhere (LOCK-12).
func (s *Service) Acquire(ctx context.Context, req AcquireRequest) (AcquireResult, error) {
	defer s.flight.enter()()
	arrived := s.clock.Elapsed()
	req, err := s.checkAcquire(req)
	if err != nil {
		return AcquireResult{}, err
	}
	result, err := s.acquire(ctx, req, newCall(arrived, ctx.Done()))
	event := port.Event{
		Kind:     port.EventAcquired,
		Key:      req.Key,
		Session:  req.Session,
		Duration: s.clock.Elapsed() - arrived,
		Err:      err,
	}
	switch {
	case err != nil:
		event.Outcome = port.OutcomeError
	case result.Granted:
		event.Outcome = port.OutcomeGranted
		event.Owner, event.Token = result.Grant.Owner, result.Grant.Token
	default:
		event.Outcome = port.OutcomeContended
		result.Waiters, _ = s.lines.front(req.Key)
	}
	s.observe(ctx, event)
	return result, err
}

func (s *Service) acquire(ctx context.Context, req AcquireRequest, c *call) (AcquireResult, error) {
	busy, arrived := s.lines.enter(req.GrantRequest, c), c.arrived
	defer s.lines.exit(req.GrantRequest, c)
	if busy {
		return s.queue(ctx, req, c)
	}
	began := s.clock.Elapsed()
	attempt, err := s.try(ctx, req.GrantRequest, s.patience(arrived, req.Wait))
	switch {
	case err != nil && (!lock.IsRetryable(err) || s.clock.Elapsed() >= arrived+req.Wait):
		return AcquireResult{}, err
	case err == nil && attempt.Granted:
		s.granted(ctx, attempt.Grant)
		return grantedBy(arrived, answer{grant: attempt.Grant, began: began}), nil
	case err == nil && req.Wait == 0:
		return AcquireResult{Attempt: attempt}, nil
	}
	return s.stand(ctx, req, c, attempt.Holder, lock.IsAmbiguous(err))
}

// queue serves a call that finds others in line. It must not overtake them,
// so it only looks whether an earlier try of its own was granted.
func (s *Service) queue(ctx context.Context, req AcquireRequest, c *call) (AcquireResult, error) {
	arrived := c.arrived
	if req.Wait == 0 && !s.lines.has(req.GrantRequest) {
		_, holder := s.lines.front(req.Key)
		return s.conclude(ctx, req, arrived, departure{holder: holder})
	}
	for failures := 0; ; failures++ {
		began := s.clock.Elapsed()
		grant, ok, err := s.settled(ctx, req.GrantRequest)
		switch {
		case err == nil && ok:
			return grantedBy(arrived, answer{grant: grant, began: began}), nil
		case err == nil:
			return s.stand(ctx, req, c, lock.Holder{}, false)
		case !lock.IsRetryable(err) || !s.rest(ctx, c, backoff(failures), arrived+req.Wait):
			return AcquireResult{}, err
		}
	}
}

// rest pauses before the next try. It returns false if the wait ends first.
func (s *Service) rest(ctx context.Context, c *call, d, until time.Duration) bool {
	if s.clock.Elapsed()+d >= until {
		return false
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-c.answers: // abandoned
	case <-ctx.Done():
	case <-s.flight.stopping:
	}
	return false
}

// conclude answers a call whose wait is over and that has no place in line. Held is an
// answer for a live session only, and only while the store can be asked, so it
// asks, and finds a grant whose answer was lost.
func (s *Service) conclude(ctx context.Context, req AcquireRequest, arrived time.Duration, d departure) (AcquireResult, error) {
	began := s.clock.Elapsed()
	grants, err := s.locksOf(ctx, req.Session)
	if err != nil {
		if d.unknown && lock.IsRetryable(err) {
			err = lock.Contention("the wait ended before its outcome was known", true, err)
		}
		return AcquireResult{}, err
	}
	for _, g := range grants {
		if g.Key == req.Key && g.RequestID == req.RequestID {
			s.granted(ctx, g)
			return grantedBy(arrived, answer{grant: g, began: began}), nil
		}
	}
	if d.unsettled {
		return AcquireResult{}, lock.Contention("the wait ended before its outcome was known", true, nil)
	}
	holder := d.holder
	if holder.Token == 0 {
		info, err := s.read(ctx, req.Key)
		if err != nil {
			return AcquireResult{}, err
		}
		if !info.Held {
			return AcquireResult{}, lock.Contention("the key is about to go to a waiter", false, nil)
		}
		holder = holderOf(info.Grant)
	}
	return AcquireResult{Attempt: port.Attempt{Holder: holder}}, nil
}

// granted reports a grant and rings for those who watch its key.
func (s *Service) granted(ctx context.Context, g lock.Grant) {
	s.observe(ctx, port.Event{Kind: port.EventGranted, Key: g.Key, Session: g.Session, Owner: g.Owner, Token: g.Token})
	s.bells.ring(g.Key)
}

// grantedBy is the result of a grant. The client counts the rest of a lease from its own
// send time plus Waited; a grant that began before the call arrived (a retry
// took over the place during a handoff) has that much less left.
func grantedBy(arrived time.Duration, a answer) AcquireResult {
	waited := a.began - arrived
	if waited < 0 && a.grant.Lease > 0 {
		a.grant.LeaseRemaining = max(0, a.grant.LeaseRemaining+waited)
	}
	return AcquireResult{
		Attempt: port.Attempt{Granted: true, Grant: a.grant},
		Waited:  max(0, waited),
	}
}

// The store calls of this file.

// lateTry is what a try may take beyond the end of the wait. Whoever does not wait gives the store its time.
const lateTry = time.Second

// patience is how long a try of a call may take, so that a store which keeps it waiting, such as one whose row somebody has
// locked, does not keep the caller much longer than it wants to wait.
func (s *Service) patience(arrived, wait time.Duration) time.Duration {
	if wait == 0 {
		return s.cfg.StoreTimeout
	}
	return min(s.cfg.StoreTimeout, max(arrived+wait-s.clock.Elapsed(), 0)+lateTry)
}

func (s *Service) try(ctx context.Context, req port.GrantRequest, limit time.Duration) (port.Attempt, error) {
	if err := ctx.Err(); err != nil {
		return port.Attempt{}, lock.Contention(noAnswer, false, err)
	}
	return askFor(ctx, limit, func(ctx context.Context) (port.Attempt, error) {
		return s.backend.Locks.TryInsert(ctx, req)
	})
}

func (s *Service) settled(ctx context.Context, req port.GrantRequest) (grant lock.Grant, ok bool, err error) {
	grant, err = ask(ctx, s, func(ctx context.Context) (g lock.Grant, err error) {
		g, ok, err = s.backend.Handover.Settle(ctx, req.Key, req.Session, req.RequestID)
		return g, err
	})
	return grant, ok, err
}

func (s *Service) locksOf(ctx context.Context, session lock.SessionID) ([]lock.Grant, error) {
	return ask(ctx, s, func(ctx context.Context) ([]lock.Grant, error) {
		return s.backend.Sessions.LocksOf(ctx, session)
	})
}

func (s *Service) read(ctx context.Context, key lock.Key) (lock.Info, error) {
	return ask(ctx, s, func(ctx context.Context) (lock.Info, error) {
		return s.backend.Locks.Read(ctx, key)
	})
}
