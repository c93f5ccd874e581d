package client

import (
	"context"

	v1 "github.com/fencelock/fencelock/contracts/api/fencelock/v1"
	"github.com/fencelock/fencelock/core/lock"
)

// believed returns what the session holds as far as it knows, and puts its
// digest into the heartbeat if the server shall compare it with the store. It shall on
// every tenth heartbeat; when news may have been missed; on each while something may have been left behind, or an
// acquire is under way as a unary call, whose connection may be dead; and on
// each outside the stream if locks are held, since then no event tells of their end.
func (s *Session) believed(unary, check bool, req *v1.HeartbeatRequest) []holding {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, a := range s.inFlight {
		check = check || a.unary != nil
	}
	if !check && !s.ask && s.client.now() >= s.suspect && (!unary || len(s.locks) == 0) {
		return nil
	}
	held := make([]holding, 0, len(s.locks))
	var digest uint64
	for h := range s.locks {
		held = append(held, h)
		digest ^= lock.DigestOne(h.key, h.token)
	}
	req.HeldDigest = &digest
	return held
}

// reconcile settles the differences between what the session believed when it
// sent a heartbeat and what the store says it holds. Both sides may have moved on
// meanwhile, so it touches only what is certain: a grant that was believed before
// and is not listed is over; a grant that is listed and not known is that of a
// call in flight, which is made to ask for it if its answer is overdue, or nobody's, and is released.
func (s *Session) reconcile(believed []holding, listed []*v1.Grant) {
	held := make(map[holding]lock.RequestID, len(listed))
	for _, g := range listed {
		if key, err := lock.NewKey(g.GetNamespace(), g.GetKey()); err == nil {
			held[holding{key, lock.Token(g.GetToken())}] = lock.RequestID(g.GetRequestId())
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.expired() != nil {
		return
	}
	for _, h := range believed {
		l := s.locks[h]
		if _, ok := held[h]; l != nil && !ok && !l.releasing {
			l.lose("the store does not hold the grant any more")
		}
	}
	for h, id := range held {
		if _, known := s.locks[h]; known {
			continue
		}
		if a := s.inFlight[id]; a != nil {
			a.recall()
			continue
		}
		s.client.detached(func(ctx context.Context) { _, _ = s.releaseGrant(ctx, h) })
	}
}

// event takes news from the stream. Only news that names what is over is taken
// at its word; anything else makes the next heartbeat ask.
func (s *Session) event(event *v1.SessionEvent) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch e := event.GetEvent().(type) {
	case *v1.SessionEvent_SessionDead:
		s.finish(&lock.Error{Code: lock.CodeSessionDead, Message: "the session is dead"}, false)
	case *v1.SessionEvent_GrantLost:
		key, err := lock.NewKey(e.GrantLost.GetNamespace(), e.GrantLost.GetKey())
		if err != nil {
			return
		}
		if l := s.locks[holding{key, lock.Token(e.GrantLost.GetToken())}]; l != nil {
			l.lose(lossText(e.GrantLost.GetReason()))
		}
	case *v1.SessionEvent_Held:
		s.ask = true
		s.poke()
	}
}

func lossText(reason v1.LossReason) string {
	switch reason {
	case v1.LossReason_LOSS_REASON_REVOKED:
		return "the grant was revoked"
	case v1.LossReason_LOSS_REASON_LAPSED:
		return "the lease of the grant lapsed"
	case v1.LossReason_LOSS_REASON_UNSPECIFIED:
	}
	return "the grant is over"
}

// suspectNow makes heartbeats ask for what is held, for a while: a request whose answer
// was lost may still make a grant that nobody knows. The caller holds mu.
func (s *Session) suspectNow() { s.suspect = s.client.now() + suspicion }

// retrying is suspectNow for callers that do not hold mu.
func (s *Session) retrying() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.suspectNow()
}
