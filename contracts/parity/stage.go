package parity

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/fencelock/fencelock/core/lock"
	"github.com/fencelock/fencelock/core/port"
)

const (
	// patience bounds every wait for something that must happen. It is generous, so that a
	// busy machine does not fail the suite, and finite, so that a broken store does.
	patience = 20 * time.Second
	// shortTTL is for sessions that are meant to die.
	shortTTL = lock.MinTTL
	// longTTL is for sessions that must outlive their case without a heartbeat.
	longTTL = lock.MaxTTL
	// cutCall bounds a call to a store that cannot answer.
	cutCall = time.Second
	// retryPause is how long a verb waits before it asks a store again that could not answer.
	retryPause = 20 * time.Millisecond
)

// stage is a fixture with the verbs that cases are written in. A verb retries
// what the error set says is safe to retry and ends the case on anything else that it
// did not expect. Verbs are for the goroutine of the case; see crowd for others.
type stage struct {
	T
	Fixture
}

func newStage(t T, h Harness) *stage {
	t.Helper()
	f := h.New(t)
	if f.KillSession == nil || f.Partition == nil || f.Pause == nil || f.Stop == nil {
		t.Fatalf("the harness lacks a hook; parity cannot be claimed without all four")
	}
	return &stage{T: t, Fixture: f}
}

// must ends the case on an error.
func must[V any](s *stage, what string) func(V, error) V {
	s.Helper()
	return func(v V, err error) V {
		s.Helper()
		if err != nil {
			s.Fatalf("%s: %v", what, err)
		}
		return v
	}
}

// ask calls the store until it answers, as a careful client would: a retryable
// error is retried, an ambiguous one only if the call may be sent twice.
func ask[V any](ctx context.Context, idempotent bool, call func(context.Context) (V, error)) (V, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for {
		v, err := call(ctx)
		if !lock.IsRetryable(err) || (lock.IsAmbiguous(err) && !idempotent) {
			return v, err
		}
		if !pause(ctx, retryPause) {
			return v, fmt.Errorf("no answer within %v: %w", patience, err)
		}
	}
}

// pause waits for d and reports whether ctx is still alive.
func pause(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}

// breathe waits for d between two looks at the store.
func (s *stage) breathe(d time.Duration) {
	s.Helper()
	if !pause(s.Context(), d) {
		s.Fatalf("the case was ended: %v", context.Cause(s.Context()))
	}
}

// eventually asks check again and again until it is true.
func (s *stage) eventually(what string, check func() bool) {
	s.Helper()
	ctx, cancel := context.WithTimeout(s.Context(), patience)
	defer cancel()
	for !check() {
		if !pause(ctx, retryPause) {
			s.Fatalf("not within %v: %s", patience, what)
		}
	}
}

// expect fails the case unless err is of the code of want.
func (s *stage) expect(what string, err error, want *lock.Error) {
	s.Helper()
	if !errors.Is(err, want) {
		s.Errorf("%s: got %v, want %s", what, err, want.Code)
	}
}

// key returns a key of the default namespace.
func (s *stage) key(name string) lock.Key {
	s.Helper()
	return must[lock.Key](s, "make key")(lock.NewKey("", name))
}

// request asks for key under a fresh request id.
func (s *stage) request(key lock.Key, session lock.Session) port.GrantRequest {
	return port.GrantRequest{Key: key, Session: session.ID, RequestID: freshID()}
}

// freshID draws a request id that nobody used before.
func freshID() lock.RequestID {
	return lock.RequestID(lock.NewSessionID().Reveal())
}

// open opens a session with the TTL.
func (s *stage) open(b port.Backend, ttl time.Duration) lock.Session {
	s.Helper()
	return must[lock.Session](s, "open session")(ask(s.Context(), true, func(ctx context.Context) (lock.Session, error) {
		return b.Sessions.OpenSession(ctx, port.OpenRequest{Owner: "worker", TTL: ttl})
	}))
}

// heartbeat renews a session that must be alive.
func (s *stage) heartbeat(b port.Backend, session lock.Session) port.Vitals {
	s.Helper()
	return must[port.Vitals](s, "heartbeat")(beat(s.Context(), b, session.ID))
}

// beat renews a session.
func beat(ctx context.Context, b port.Backend, id lock.SessionID) (port.Vitals, error) {
	return ask(ctx, true, func(ctx context.Context) (port.Vitals, error) {
		return b.Sessions.Heartbeat(ctx, id)
	})
}

// try makes one attempt, sent as often as it takes to get an answer.
func (s *stage) try(b port.Backend, req port.GrantRequest) port.Attempt {
	s.Helper()
	return must[port.Attempt](s, "acquire "+req.Key.Name())(insert(s.Context(), b, req))
}

// insert is try for any goroutine.
func insert(ctx context.Context, b port.Backend, req port.GrantRequest) (port.Attempt, error) {
	return ask(ctx, true, func(ctx context.Context) (port.Attempt, error) {
		return b.Locks.TryInsert(ctx, req)
	})
}

// grab makes an attempt that must be granted.
func (s *stage) grab(b port.Backend, req port.GrantRequest) lock.Grant {
	s.Helper()
	a := s.try(b, req)
	if !a.Granted {
		s.Fatalf("acquire %s: held by token %d, want a grant", req.Key.Name(), a.Holder.Token)
	}
	return a.Grant
}

// hold is grab under a fresh request id without a lease.
func (s *stage) hold(b port.Backend, key lock.Key, session lock.Session) lock.Grant {
	s.Helper()
	return s.grab(b, s.request(key, session))
}

// blocked makes an attempt that must be held, and returns by whom.
func (s *stage) blocked(b port.Backend, req port.GrantRequest) lock.Holder {
	s.Helper()
	a := s.try(b, req)
	if a.Granted {
		s.Fatalf("acquire %s: granted token %d, want held", req.Key.Name(), a.Grant.Token)
	}
	return a.Holder
}

// release ends a grant that must be live.
func (s *stage) release(b port.Backend, g lock.Grant) {
	s.Helper()
	if !s.end(b, g.Key, g.Session, g.Token) {
		s.Fatalf("release %s token %d: false, want true", g.Key.Name(), g.Token)
	}
}

// end releases and returns the answer.
func (s *stage) end(b port.Backend, key lock.Key, session lock.SessionID, token lock.Token) bool {
	s.Helper()
	return must[bool](s, "release "+key.Name())(ask(s.Context(), false, func(ctx context.Context) (bool, error) {
		return b.Locks.DeleteIfOwner(ctx, key, session, token)
	}))
}

// extend asks for a later end and returns the answer.
func (s *stage) extend(b port.Backend, g lock.Grant, lease time.Duration) (lock.Grant, error) {
	return ask(s.Context(), true, func(ctx context.Context) (lock.Grant, error) {
		return b.Locks.Extend(ctx, g.Key, g.Session, g.Token, lease)
	})
}

// read returns the picture of a key.
func (s *stage) read(b port.Backend, key lock.Key) lock.Info {
	s.Helper()
	return must[lock.Info](s, "read "+key.Name())(ask(s.Context(), true, func(ctx context.Context) (lock.Info, error) {
		return b.Locks.Read(ctx, key)
	}))
}

// locksOf lists what a session holds.
func (s *stage) locksOf(b port.Backend, session lock.Session) []lock.Grant {
	s.Helper()
	return must[[]lock.Grant](s, "locks of session")(held(s.Context(), b, session.ID))
}

// held is locksOf for any goroutine and any outcome.
func held(ctx context.Context, b port.Backend, id lock.SessionID) ([]lock.Grant, error) {
	return ask(ctx, true, func(ctx context.Context) ([]lock.Grant, error) {
		return b.Sessions.LocksOf(ctx, id)
	})
}

// close ends a session and returns how many grants it had.
func (s *stage) close(b port.Backend, id lock.SessionID) int {
	s.Helper()
	return must[int](s, "close session")(ask(s.Context(), false, func(ctx context.Context) (int, error) {
		return b.Sessions.CloseSession(ctx, id)
	}))
}

// revoke revokes and returns the answer. expected 0 revokes whatever is there.
func (s *stage) revoke(b port.Backend, key lock.Key, expected lock.Token) (lock.Revocation, error) {
	return ask(s.Context(), false, func(ctx context.Context) (lock.Revocation, error) {
		return b.Locks.Revoke(ctx, port.RevokeRequest{
			Key: key, Operator: "operator", Reason: "parity suite", Expected: expected,
		})
	})
}

// revocations lists the audit records of the default namespace on one page.
func (s *stage) revocations(b port.Backend) []lock.Revocation {
	s.Helper()
	return must[[]lock.Revocation](s, "list revocations")(ask(s.Context(), true, func(ctx context.Context) ([]lock.Revocation, error) {
		list, _, err := b.Catalog.Revocations(ctx, lock.DefaultNamespace, port.Page{Size: port.MaxPageSize})
		return list, err
	}))
}

// listed lists the grants of the default namespace on one page.
func listed(ctx context.Context, b port.Backend, prefix string) ([]lock.Grant, error) {
	return ask(ctx, true, func(ctx context.Context) ([]lock.Grant, error) {
		list, _, err := b.Catalog.Grants(ctx, lock.DefaultNamespace, prefix, port.Page{Size: port.MaxPageSize})
		return list, err
	})
}

// handoff passes a grant on and returns the answer.
func (s *stage) handoff(b port.Backend, from lock.Grant, to port.GrantRequest) (lock.Grant, error) {
	return ask(s.Context(), false, func(ctx context.Context) (lock.Grant, error) {
		return b.Handover.Handoff(ctx, port.GrantRef{Key: from.Key, Session: from.Session, Token: from.Token}, to)
	})
}

// abandon withdraws a request id and returns the answer.
func (s *stage) abandon(b port.Backend, req port.GrantRequest) bool {
	s.Helper()
	return must[bool](s, "abandon "+req.Key.Name())(ask(s.Context(), false, func(ctx context.Context) (bool, error) {
		return b.Handover.Abandon(ctx, req.Key, req.Session, req.RequestID)
	}))
}

// settle looks a request id up.
func (s *stage) settle(b port.Backend, req port.GrantRequest) (lock.Grant, bool) {
	s.Helper()
	var ok bool
	g, err := ask(s.Context(), true, func(ctx context.Context) (g lock.Grant, err error) {
		g, ok, err = b.Handover.Settle(ctx, req.Key, req.Session, req.RequestID)
		return g, err
	})
	if err != nil {
		s.Fatalf("settle %s: %v", req.Key.Name(), err)
	}
	return g, ok
}

// cut bounds a call to a store that cannot answer.
func (s *stage) cut() (context.Context, context.CancelFunc) {
	return context.WithTimeout(s.Context(), cutCall)
}

// higher fails the case unless the tokens of one key strictly increase.
func (s *stage) higher(how string, before, after lock.Token) {
	s.Helper()
	if after <= before {
		s.Errorf("token after %s is %d, want above %d", how, after, before)
	}
}

// holds fails the case unless exactly this grant stands on its key, as the
// holder's own list and an attempt of another session see it.
func (s *stage) holds(b port.Backend, g lock.Grant) {
	s.Helper()
	list, err := held(s.Context(), b, g.Session)
	if err != nil {
		s.Fatalf("list the holder's locks: %v", err)
	}
	for _, l := range list {
		if l.Key == g.Key && l.Token == g.Token {
			return
		}
	}
	s.Errorf("%s token %d is not among the holder's locks %v", g.Key.Name(), g.Token, tokens(list))
}

func tokens(grants []lock.Grant) []lock.Token {
	list := make([]lock.Token, 0, len(grants))
	for _, g := range grants {
		list = append(list, g.Token)
	}
	return list
}
