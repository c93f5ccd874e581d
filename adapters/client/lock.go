package client

import (
	"context"
	"errors"
	"strconv"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	v1 "github.com/fencelock/fencelock/contracts/api/fencelock/v1"
	"github.com/fencelock/fencelock/core/lock"
)

// Lock is one grant. It is safe for concurrent use.
type Lock struct {
	session *Session
	holding holding
	// retried: the acquire was sent more than once, so a copy may still be under way.
	retried bool
	ctx     context.Context //nolint:containedctx // what Context returns
	cancel  context.CancelCauseFunc

	// Guarded by the session's mu.
	signed    string        // the token's signed form; "" without one
	deadline  time.Duration // of the lease, on the client's clock; 0 without one
	leased    time.Duration // what an answer can promise at most: the longest lease known of
	over      error
	releasing bool // Release was called: its absence from the store is no loss
}

// Key returns the lock's name.
func (l *Lock) Key() lock.Key { return l.holding.key }

// Token returns the fencing token: present it to every resource that the lock protects.
func (l *Lock) Token() lock.Token { return l.holding.token }

// SignedToken returns the token in the form that the server has signed; "" where it signs none. Like the token it is good
// for as long as no newer grant has written. It should not be shown: whoever has it can write like the holder.
func (l *Lock) SignedToken() string {
	l.session.mu.Lock()
	defer l.session.mu.Unlock()
	return l.signed
}

// TokenHeader returns what to put into the header Fencelock-Token of a request to a resource: the signed form if
// there is one, else the number in decimal.
func (l *Lock) TokenHeader() string {
	if signed := l.SignedToken(); signed != "" {
		return signed
	}
	return strconv.FormatInt(int64(l.holding.token), 10)
}

// Context is cancelled when the lock is over; context.Cause says why, and is
// [lock.ErrLost]. It carries the values of the acquire's context but does not
// end with it. Stop the work when it ends: at loss the store may give the key
// to someone else once the safety margin has passed.
func (l *Lock) Context() context.Context { return l.ctx }

// CheckStillHeld returns nil if, at this moment, the store cannot have given
// the key to anyone else, and [lock.ErrLost] otherwise, wrapping the reason.
// The answer is old as soon as it is given: only the token, checked by the
// resource, protects a write.
func (l *Lock) CheckStillHeld() error {
	l.session.mu.Lock()
	defer l.session.mu.Unlock()
	return l.held()
}

// Deadline returns how long [Lock.CheckStillHeld] will return nil if no further
// heartbeat or extension is answered; 0 once the lock is over.
func (l *Lock) Deadline() time.Duration {
	l.session.mu.Lock()
	defer l.session.mu.Unlock()
	if l.held() != nil {
		return 0
	}
	deadline := l.session.deadline
	if l.deadline > 0 {
		deadline = min(deadline, l.deadline)
	}
	return deadline - l.session.client.now()
}

// held compares the clock with both deadlines. The caller holds the session's
// mu, as for all methods down to lose.
func (l *Lock) held() error {
	if l.over == nil && l.session.expired() == nil {
		return l.expired()
	}
	return l.over
}

// expired compares the clock with the deadline of the lease.
func (l *Lock) expired() error {
	if l.over == nil && l.deadline > 0 && l.session.client.now() >= l.deadline {
		l.lose("the lease of the grant is about to lapse")
	}
	return l.over
}

func (l *Lock) lose(message string) {
	l.finish(&lock.Error{Code: lock.CodeLost, Message: message})
	delete(l.session.locks, l.holding)
}

func (l *Lock) finish(reason error) {
	if l.over == nil {
		l.over = reason
		l.cancel(reason)
	}
}

// Extend moves the end of the grant's lease to lease from now, never earlier;
// 0 means its own length again. A grant without a lease stays as it is. Errors: [lock.ErrLost] if
// the grant is over, [lock.ErrInvalid], and retryable ones after which the
// lock is held until its old deadline.
func (l *Lock) Extend(ctx context.Context, lease time.Duration) error {
	if err := l.CheckStillHeld(); err != nil {
		return err
	}
	req := &v1.ExtendRequest{
		Namespace: l.holding.key.Namespace(), Key: l.holding.key.Name(),
		SessionId: l.session.id.Reveal(), Token: int64(l.holding.token),
	}
	if lease != 0 {
		rounded, err := lock.RoundTTL("lease", lease)
		if err != nil {
			return err
		}
		req.Lease = durationpb.New(rounded)
		lease = rounded
	}
	var sent time.Duration
	var resp *v1.ExtendResponse
	err := l.session.client.retry(ctx, func(ctx context.Context) (err error) {
		sent = l.session.client.now()
		resp, err = l.session.client.extend(ctx, req)
		return err
	})
	return l.extended(sent, lease, resp, err)
}

// extended takes the outcome of an extension sent at a moment.
func (l *Lock) extended(sent, lease time.Duration, resp *v1.ExtendResponse, err error) error {
	s := l.session
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case errors.Is(err, lock.ErrLost):
		l.lose("the grant is over")
	case errors.Is(err, lock.ErrSessionDead):
		s.finish(err, false)
	}
	if over := l.held(); over != nil {
		return over
	}
	if err != nil {
		return err
	}
	if signed := resp.GetGrant().GetSignedToken(); signed != "" {
		l.signed = signed // the server may have another key by now
	}
	if resp.GetGrant().GetLeaseRemaining() == nil {
		return nil
	}
	if l.leased = max(l.leased, lease); l.deadline == 0 {
		l.leased = lock.MaxTTL // a lease that was not heard of before
	}
	remaining := within(resp.GetGrant().GetLeaseRemaining().AsDuration(), l.leased)
	l.deadline = max(l.deadline, s.client.cfg.reckon(sent, s.client.now(), remaining, s.client.cfg.margin))
	signal(s.kick)
	return nil
}

// ReleaseOutcome says what a release found.
type ReleaseOutcome int

// The outcomes of [Lock.Release].
const (
	// Released: this call ended the grant.
	Released ReleaseOutcome = iota + 1
	// AlreadyOver: the grant was over before. It was released, revoked or lost
	// earlier, or an earlier try of this very release ended it and its answer was
	// lost. It is not by itself a sign that the lock was lost while in use;
	// call [Lock.CheckStillHeld] before releasing to learn that.
	AlreadyOver
)

// String returns "released" or "already over".
func (o ReleaseOutcome) String() string {
	switch o {
	case Released:
		return "released"
	case AlreadyOver:
		return "already over"
	}
	return "unknown"
}

// Release ends the lock, here at once, whatever follows, and on the server. It may be
// called again. An error means that the server could not be asked, within
// the context and the call timeout, and no outcome is known: the grant ends by itself after one of the next
// heartbeats, or with the session. To release after the work's own context has ended, pass
// context.WithoutCancel of it.
func (l *Lock) Release(ctx context.Context) (ReleaseOutcome, error) {
	s := l.session
	s.mu.Lock()
	l.releasing = true
	l.finish(&lock.Error{Code: lock.CodeLost, Message: "the lock was released by this client"})
	if l.retried {
		s.suspectNow() // a late copy of the acquire may find the key free now
	}
	s.mu.Unlock()
	released, err := s.releaseGrant(ctx, l.holding)
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.locks, l.holding)
	if err != nil {
		s.suspectNow()
		return 0, err
	}
	if released {
		return Released, nil
	}
	return AlreadyOver, nil
}

// releaseGrant ends a grant on the server; false means that it was over.
func (s *Session) releaseGrant(ctx context.Context, h holding) (released bool, err error) {
	req := &v1.ReleaseRequest{
		Namespace: h.key.Namespace(), Key: h.key.Name(), SessionId: s.id.Reveal(), Token: int64(h.token),
	}
	err = s.client.retry(ctx, func(ctx context.Context) error {
		resp, err := s.client.release(ctx, req)
		released = resp.GetReleased()
		return err
	})
	return released, err
}
