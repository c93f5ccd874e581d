package service

import (
	"context"
	"errors"

	"github.com/fencelock/fencelock/core/lock"
	"github.com/fencelock/fencelock/core/port"
)

// OpenSession creates a session under a fresh, unguessable id. TTL 0 means the default.
func (s *Service) OpenSession(ctx context.Context, req port.OpenRequest) (lock.Session, error) {
	defer s.flight.enter()()
	req, err := s.checkOpen(req)
	if err != nil {
		return lock.Session{}, err
	}
	session, err := ask(ctx, s, func(ctx context.Context) (lock.Session, error) {
		return s.backend.Sessions.OpenSession(ctx, req)
	})
	if err == nil {
		s.hub.served(session.ID, s.clock.Elapsed())
		s.observe(ctx, port.Event{Kind: port.EventSessionOpened, Session: session.ID, Owner: session.Owner})
	}
	return session, err
}

// Heartbeat renews the session and answers with the time that the store has guaranteed, counted
// from the return of this call. [lock.ErrSessionDead] is terminal. A heartbeat that is too
// old, or that this server may have slept over, is dropped with a retryable
// [lock.ErrContention]: it must not revive a session whose client has given up.
//
// With Check, the answer lists the session's grants where they are not what the
// digest says. A check that could not be made is left out: the heartbeat itself counts.
func (s *Service) Heartbeat(ctx context.Context, req HeartbeatRequest) (HeartbeatResult, error) {
	defer s.flight.enter()()
	if err := checkSession(req.Session); err != nil {
		return HeartbeatResult{}, err
	}
	now := s.clock.Elapsed()
	if req.ReceivedAt != 0 && now-req.ReceivedAt > s.cfg.HeartbeatStale || s.thaw.doubtful(now) {
		return HeartbeatResult{}, lock.Contention("the heartbeat came too late to be passed on", false, nil)
	}
	vitals, err := ask(ctx, s, func(ctx context.Context) (port.Vitals, error) {
		return s.backend.Sessions.Heartbeat(ctx, req.Session)
	})
	if err != nil {
		s.noticeDead(ctx, req.Session, err)
		return HeartbeatResult{}, err
	}
	s.hub.served(req.Session, now)
	result := HeartbeatResult{Vitals: vitals}
	if req.Check {
		answered := s.clock.Elapsed()
		if err := s.compare(ctx, req, &result); errors.Is(err, lock.ErrSessionDead) {
			s.noticeDead(ctx, req.Session, err)
			return HeartbeatResult{}, err
		}
		result.Remaining = max(0, result.Remaining-(s.clock.Elapsed()-answered))
	}
	return result, nil
}

// compare checks the digest against the store. It takes a small part of the
// guaranteed time at most, so that the answer is still worth something.
func (s *Service) compare(ctx context.Context, req HeartbeatRequest, result *HeartbeatResult) error {
	ctx, cancel := context.WithTimeout(ctx, result.Remaining/4)
	defer cancel()
	grants, err := s.locksOf(ctx, req.Session)
	if err != nil {
		return err
	}
	if lock.Digest(grants) != req.Digest {
		result.Differs, result.Held = true, grants
	}
	return nil
}

// noticeDead reports the loss of a session that this server served.
func (s *Service) noticeDead(ctx context.Context, session lock.SessionID, err error) {
	if errors.Is(err, lock.ErrSessionDead) {
		s.sessionOver(ctx, session)
	}
}

// sessionOver tells everyone on this server that a session is over.
func (s *Service) sessionOver(ctx context.Context, session lock.SessionID) {
	s.lines.sessionOver(session)
	if s.hub.over(session) {
		s.observe(ctx, port.Event{Kind: port.EventSessionLost, Session: session})
	}
}

// CloseSession ends the session and all its grants and returns how many grants
// there were; 0 and no error if it is over already.
func (s *Service) CloseSession(ctx context.Context, session lock.SessionID) (int, error) {
	defer s.flight.enter()()
	if err := checkSession(session); err != nil {
		return 0, err
	}
	served := s.hub.forget(session)
	ended, err := ask(ctx, s, func(ctx context.Context) (int, error) {
		return s.backend.Sessions.CloseSession(ctx, session)
	})
	if err != nil {
		return 0, err
	}
	if served || ended > 0 {
		s.observe(ctx, port.Event{Kind: port.EventSessionClosed, Session: session, Count: ended})
	}
	s.sessionOver(ctx, session)
	if ended > 0 {
		s.lines.freedAll(func(h lock.Holder) bool { return h.Session.Equal(session) })
	}
	return ended, nil
}
