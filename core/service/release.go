package service

import (
	"context"
	"errors"
	"time"

	"github.com/fencelock/fencelock/core/lock"
	"github.com/fencelock/fencelock/core/port"
)

// How long the local line leaves the key alone after a chain of handoffs.
const (
	yieldLow  = 5 * time.Millisecond
	yieldHigh = 20 * time.Millisecond
)

// Release ends the grant that (key, session, token) names and reports whether there was one;
// a grant that is over is no error. If somebody waits for the key on this server, the grant
// passes to the first of them in the same step of the store.
//
// Errors: [lock.ErrInvalid]; [lock.ErrContention] and [lock.ErrNotLeader], ambiguous where
// the grant may be over.
func (s *Service) Release(ctx context.Context, key lock.Key, session lock.SessionID, token lock.Token) (bool, error) {
	defer s.flight.enter()()
	if err := checkGrantRef(key, session, token); err != nil {
		return false, err
	}
	from := port.GrantRef{Key: key, Session: session, Token: token}
	released, err := s.release(ctx, from)
	if released {
		s.observe(ctx, port.Event{Kind: port.EventReleased, Key: key, Session: session, Token: token})
		s.bells.ring(key)
	}
	return released, err
}

func (s *Service) release(ctx context.Context, from port.GrantRef) (bool, error) {
	for {
		p, to, exhausted := s.lines.offer(from, s.cfg.HandoffLimit)
		if p == nil {
			return s.free(ctx, from, exhausted)
		}
		began := s.clock.Elapsed()
		grant, err := ask(ctx, s, func(ctx context.Context) (lock.Grant, error) {
			return s.backend.Handover.Handoff(ctx, from, to)
		})
		switch {
		case err == nil:
			s.handed(ctx, p, from, answer{grant: grant, began: began})
			return true, nil
		case errors.Is(err, lock.ErrSessionDead):
			s.lines.resolve(p, nil, answer{err: lock.ErrSessionDead})
			s.lines.sessionOver(to.Session)
		case errors.Is(err, lock.ErrLost):
			s.lines.kept(p, nil)
			return false, nil
		case lock.IsAmbiguous(err):
			return s.settle(ctx, from, p, to, err)
		default:
			// Nothing happened. A plain release needs less of the store than a handoff.
			s.lines.kept(p, nil)
			return s.free(ctx, from, false)
		}
	}
}

// handed tells everyone of a handoff that happened.
func (s *Service) handed(ctx context.Context, p *place, from port.GrantRef, a answer) {
	first := s.lines.handed(p, from, a, s.clock.Elapsed())
	s.observe(ctx, port.Event{Kind: port.EventHandoff, Key: from.Key, Session: a.grant.Session, Token: a.grant.Token})
	if first {
		s.granted(ctx, a.grant)
	}
}

// settle finds out what became of a handoff whose answer was lost. Deleting the
// first grant makes sure that it cannot happen later; if that grant is over, either the
// handoff ended it or something else did.
func (s *Service) settle(ctx context.Context, from port.GrantRef, p *place, to port.GrantRequest, cause error) (bool, error) {
	happened, err := s.arrived(ctx, from, p, to)
	if happened {
		return true, nil
	}
	if err == nil {
		var gone bool
		if gone, err = s.delete(ctx, from); err == nil && gone {
			s.lines.kept(p, nil)
			s.lines.freed(from.Key, 0)
			return true, nil
		}
	}
	if err == nil {
		if happened, err = s.arrived(ctx, from, p, to); happened {
			return true, nil
		}
	}
	if err == nil {
		s.lines.kept(p, nil) // the grant is over: no handoff can follow
	} else {
		s.lines.kept(p, &doubt{from: from.Token})
	}
	return false, lock.Contention("the outcome of the release is unknown", true, cause)
}

// arrived looks for the grant that a handoff made, and hands it to its waiter.
func (s *Service) arrived(ctx context.Context, from port.GrantRef, p *place, to port.GrantRequest) (bool, error) {
	began := s.clock.Elapsed()
	grant, ok, err := s.settled(ctx, to)
	switch {
	case errors.Is(err, lock.ErrSessionDead):
		s.lines.resolve(p, nil, answer{err: lock.ErrSessionDead})
		return false, nil
	case err != nil || !ok:
		return false, err
	}
	s.handed(ctx, p, from, answer{grant: grant, began: began})
	return true, nil
}

// free is the plain release.
func (s *Service) free(ctx context.Context, from port.GrantRef, yield bool) (bool, error) {
	released, err := s.delete(ctx, from)
	if released || err != nil {
		var notBefore time.Duration
		if yield {
			notBefore = s.clock.Elapsed() + between(yieldLow, yieldHigh)
		}
		s.lines.freed(from.Key, notBefore)
	}
	return released, err
}

func (s *Service) delete(ctx context.Context, from port.GrantRef) (bool, error) {
	return ask(ctx, s, func(ctx context.Context) (bool, error) {
		return s.backend.Locks.DeleteIfOwner(ctx, from.Key, from.Session, from.Token)
	})
}

// Abandon withdraws a request: it ends the live grant that (key, session, request id)
// names, and a wait that still stands for it on this server. It reports whether there was a grant.
// The caller must not use the id again.
func (s *Service) Abandon(ctx context.Context, key lock.Key, session lock.SessionID, id lock.RequestID) (bool, error) {
	defer s.flight.enter()()
	if err := checkRequest(key, session, id); err != nil {
		return false, err
	}
	limit, cancel := context.WithTimeout(ctx, s.cfg.StoreTimeout)
	defer cancel()
	for _, ended := range s.lines.withdraw(key, session, id) {
		select {
		case <-ended:
		case <-limit.Done():
		}
	}
	withdrawn, err := ask(ctx, s, func(ctx context.Context) (bool, error) {
		return s.backend.Handover.Abandon(ctx, key, session, id)
	})
	if withdrawn {
		s.observe(ctx, port.Event{Kind: port.EventReleased, Key: key, Session: session})
		s.ended(key)
	}
	return withdrawn, err
}

// Extend moves the end of a leased grant later; lease 0 means the grant's own
// lease again. A grant that is over is [lock.ErrLost]; a session-bound grant is returned unchanged.
func (s *Service) Extend(
	ctx context.Context, key lock.Key, session lock.SessionID, token lock.Token, lease time.Duration,
) (lock.Grant, error) {
	defer s.flight.enter()()
	if err := checkGrantRef(key, session, token); err != nil {
		return lock.Grant{}, err
	}
	lease, err := checkLease(lease)
	if err != nil {
		return lock.Grant{}, err
	}
	return ask(ctx, s, func(ctx context.Context) (lock.Grant, error) {
		return s.backend.Locks.Extend(ctx, key, session, token, lease)
	})
}

// Revoke ends a grant by an operator's will. A free key, or a token that is not the
// expected one, is [lock.ErrLost].
func (s *Service) Revoke(ctx context.Context, req port.RevokeRequest) (lock.Revocation, error) {
	defer s.flight.enter()()
	if err := checkRevoke(req); err != nil {
		return lock.Revocation{}, err
	}
	revocation, err := ask(ctx, s, func(ctx context.Context) (lock.Revocation, error) {
		return s.backend.Locks.Revoke(ctx, req)
	})
	if err == nil {
		s.observe(ctx, port.Event{
			Kind:    port.EventRevoked,
			Key:     req.Key,
			Session: revocation.PreviousSession,
			Owner:   revocation.PreviousOwner,
			Token:   revocation.PreviousToken,
		})
		s.ended(req.Key)
	}
	return revocation, err
}

// RaiseFloor lifts all further tokens above a number and ends all grants.
func (s *Service) RaiseFloor(ctx context.Context, req port.FloorRequest) (port.FloorRaised, error) {
	defer s.flight.enter()()
	if err := checkFloor(req); err != nil {
		return port.FloorRaised{}, err
	}
	raised, err := ask(ctx, s, func(ctx context.Context) (port.FloorRaised, error) {
		return s.backend.Custodian.RaiseFloor(ctx, req)
	})
	if err == nil {
		s.observe(ctx, port.Event{Kind: port.EventFloorRaised, Token: raised.Floor, Count: raised.EndedGrants})
		s.lines.freedAll(func(lock.Holder) bool { return true })
	}
	return raised, err
}

// ended tells this server's waiters and watchers that the grant of the key has ended.
func (s *Service) ended(key lock.Key) {
	s.lines.freed(key, 0)
	s.bells.ring(key)
}
