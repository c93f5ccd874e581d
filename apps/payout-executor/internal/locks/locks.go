package locks

import (
	"context"
	"errors"
	"strconv"
	"sync"
	"time"

	"github.com/fencelock/fencelock/adapters/client"
	"github.com/fencelock/fencelock/apps/payout-executor/internal/payout"
	"github.com/fencelock/fencelock/core/lock"
)

// Key is the lock of an account.
func Key(account string) string { return "payout:" + account }

// Locks implements [payout.Locks]. It is safe for concurrent use.
type Locks struct {
	client *client.Client
	owner  string
	ttl    time.Duration

	// opening lets one caller at a time open a session.
	opening chan struct{}
	mu      sync.Mutex
	session *client.Session
	closed  bool
}

// New returns the locks of the client, which stays the caller's to close. owner says who asks, for people and logs; ttl is that of
// the session.
func New(c *client.Client, owner string, ttl time.Duration) *Locks {
	return &Locks{client: c, owner: owner, ttl: ttl, opening: make(chan struct{}, 1)}
}

// TryAcquire implements [payout.Locks].
func (l *Locks) TryAcquire(ctx context.Context, account string) (payout.Lock, error) {
	s, err := l.live(ctx)
	if err != nil {
		return nil, err
	}
	got, err := s.TryAcquire(ctx, Key(account))
	if err != nil {
		if errors.Is(err, lock.ErrSessionDead) {
			l.forget(s)
		}
		return nil, err
	}
	return held{got}, nil
}

// Ping asks whether the lock service answers: there is a session, and its last heartbeat was answered.
func (l *Locks) Ping(ctx context.Context) error {
	s, err := l.live(ctx)
	if err != nil {
		return err
	}
	if s.State() != client.Safe {
		return lock.Contention("heartbeats are not answered", false, nil)
	}
	return nil
}

// Close ends the session and what is held under it. Work that the locks protect must have ended.
func (l *Locks) Close(ctx context.Context) error {
	l.mu.Lock()
	s := l.session
	l.session, l.closed = nil, true
	l.mu.Unlock()
	if s == nil {
		return nil
	}
	_, err := s.Close(ctx)
	return err
}

// live returns a session that is not over, as far as anybody here knows.
func (l *Locks) live(ctx context.Context) (*client.Session, error) {
	if s, err := l.current(); s != nil || err != nil {
		return s, err
	}
	select {
	case l.opening <- struct{}{}:
		defer func() { <-l.opening }()
	case <-ctx.Done():
		return nil, lock.Contention("the call was given up", false, context.Cause(ctx))
	}
	if s, err := l.current(); s != nil || err != nil {
		return s, err
	}
	s, err := l.client.OpenSession(ctx, l.owner, client.WithTTL(l.ttl))
	if err != nil {
		return nil, err
	}
	return s, l.keep(ctx, s)
}

func (l *Locks) current() (*client.Session, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return nil, errClosed()
	}
	if l.session != nil && l.session.Err() == nil {
		return l.session, nil
	}
	return nil, nil
}

// keep makes s the session, unless it came too late.
func (l *Locks) keep(ctx context.Context, s *client.Session) error {
	l.mu.Lock()
	closed := l.closed
	if !closed {
		l.session = s
	}
	l.mu.Unlock()
	if closed {
		_, _ = s.Close(context.WithoutCancel(ctx)) // it would die by itself
		return errClosed()
	}
	return nil
}

// forget makes the next caller open a new session: the service says that this one is dead.
func (l *Locks) forget(s *client.Session) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.session == s {
		l.session = nil
	}
}

func errClosed() error { return &lock.Error{Code: lock.CodeInvalid, Message: "the locks are closed"} }

// held is a lock of the SDK.
type held struct{ *client.Lock }

// Token implements [payout.Lock].
func (h held) Token() payout.Token {
	number := h.Lock.Token()
	return payout.Token{Number: number, Text: strconv.FormatInt(int64(number), 10)}
}

// Release implements [payout.Lock].
func (h held) Release(ctx context.Context) error {
	_, err := h.Lock.Release(ctx)
	return err
}
