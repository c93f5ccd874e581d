package locks

import (
	"context"
	"errors"
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
	// accepting ends with [Locks.Drain]: no more locks from then on.
	accepting context.Context //nolint:containedctx // a part of this type's life
	drain     context.CancelFunc

	mu      sync.Mutex
	session *client.Session
	// opening is the attempt to open a session that is under way; who needs one waits for it.
	opening *attempt
}

// attempt is one opening of a session. Its result is there once done is closed.
type attempt struct {
	done    chan struct{}
	session *client.Session
	err     error
}

// New returns the locks of the client, which stays the caller's to close. owner says who asks, for people and logs; ttl is that of
// the session.
func New(c *client.Client, owner string, ttl time.Duration) *Locks {
	l := &Locks{client: c, owner: owner, ttl: ttl}
	l.accepting, l.drain = context.WithCancel(context.Background()) // until Drain
	return l
}

// TryAcquire implements [payout.Locks].
func (l *Locks) TryAcquire(ctx context.Context, account string) (payout.Lock, error) {
	if l.accepting.Err() != nil {
		return nil, noMore() // what AfterFunc calls may come after the answer
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(l.accepting, cancel)()
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

// noMore says that the locks are drained.
func noMore() error {
	return &lock.Error{Code: lock.CodeInvalid, Message: "no more locks are asked for"}
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

// Drain ends the asking for locks. What is held stays so.
func (l *Locks) Drain() { l.drain() }

// Close ends the session and what is held under it. Work that the locks protect must have ended.
func (l *Locks) Close(ctx context.Context) error {
	l.drain()
	l.mu.Lock()
	s, opening := l.session, l.opening
	l.session = nil
	l.mu.Unlock()
	if opening != nil {
		<-opening.done
		s = opening.session
	}
	if s == nil {
		return nil
	}
	_, err := s.Close(ctx)
	return err
}

// live returns a session that is not over, as far as anybody here knows.
func (l *Locks) live(ctx context.Context) (*client.Session, error) {
	l.mu.Lock()
	if s := l.session; s != nil && s.Err() == nil {
		l.mu.Unlock()
		return s, nil
	}
	if l.opening == nil && l.accepting.Err() == nil {
		l.opening = &attempt{done: make(chan struct{})}
		go l.open(l.opening)
	}
	opening := l.opening
	l.mu.Unlock()
	if opening == nil {
		return nil, noMore()
	}
	select {
	case <-opening.done:
		return opening.session, opening.err
	case <-ctx.Done():
		return nil, lock.Contention("the call was given up", false, context.Cause(ctx))
	}
}

// open makes an attempt, which the client bounds in time.
func (l *Locks) open(a *attempt) {
	a.session, a.err = l.client.OpenSession(l.accepting, l.owner, client.WithTTL(l.ttl))
	l.mu.Lock()
	l.session, l.opening = a.session, nil
	l.mu.Unlock()
	close(a.done)
}

// forget makes the next caller open a new session: the service says that this one is dead.
func (l *Locks) forget(s *client.Session) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.session == s {
		l.session = nil
	}
}

// held is a lock of the SDK.
type held struct{ *client.Lock }

// Token implements [payout.Lock].
func (h held) Token() payout.Token {
	return payout.Token{Number: h.Lock.Token(), Text: h.TokenHeader()}
}

// Release implements [payout.Lock].
func (h held) Release(ctx context.Context) error {
	_, err := h.Lock.Release(ctx)
	return err
}
