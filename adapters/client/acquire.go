package client

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"math"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/types/known/durationpb"

	v1 "github.com/fencelock/fencelock/contracts/api/fencelock/v1"
	"github.com/fencelock/fencelock/core/lock"
)

// maxWait is the longest wait that a server takes; longer ones are asked for in parts.
const maxWait = time.Hour

// unaryWait is the longest wait asked for in one unary call. Its connection says nothing while
// the call waits, so a request that was lost on the way is noticed only by its end. (A lost
// answer is noticed by a heartbeat, if it is a grant.)
const unaryWait = 20 * time.Second

// forever is a wait without a bound of its own.
const forever = time.Duration(math.MaxInt64)

// TryAcquire asks for the key once, without standing in line; [WithWait] has no effect. Errors: a [*HeldError] if
// someone else (or this very session: it does not re-enter) holds the key,
// [lock.ErrSessionDead], [lock.ErrInvalid], [lock.ErrDenied], [lock.ErrUnsafeStore], and
// retryable ones once the call timeout is over. Whatever the error, no grant stays behind.
func (s *Session) TryAcquire(ctx context.Context, key string, opts ...AcquireOption) (*Lock, error) {
	var cfg acquireConfig
	for _, opt := range opts {
		opt.applyAcquire(&cfg)
	}
	cfg.wait = new(time.Duration)
	return s.acquire(ctx, key, cfg)
}

// Acquire is like [Session.TryAcquire], and stands in line for at most
// [WithWait], by default for as long as the context allows. It ends early if the
// session does. If the context ends, the error wraps the context's; what was asked for
// is withdrawn in the background, which [Client.Close] waits for.
func (s *Session) Acquire(ctx context.Context, key string, opts ...AcquireOption) (*Lock, error) {
	var cfg acquireConfig
	for _, opt := range opts {
		opt.applyAcquire(&cfg)
	}
	return s.acquire(ctx, key, cfg)
}

func (s *Session) acquire(ctx context.Context, name string, cfg acquireConfig) (*Lock, error) {
	a, err := newAcquisition(s, name, cfg)
	if err != nil {
		return nil, err
	}
	// The call ends with the caller's context and with the session.
	work, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(s.ctx, func() { cancel(context.Cause(s.ctx)) })()
	l, err := a.run(ctx, work)
	s.mu.Lock()
	delete(s.inFlight, a.id)
	s.mu.Unlock()
	if err != nil && a.mustWithdraw {
		a.withdraw()
		err = settled(err)
	}
	return l, err
}

// acquisition is one acquire with all its tries, which share one request id.
type acquisition struct {
	session *Session
	key     lock.Key
	id      lock.RequestID
	cfg     acquireConfig
	lease   time.Duration
	// until bounds the wait, and patience the retries, on the client's clock.
	until, patience time.Duration
	tries           int
	// mustWithdraw: some try may have made, or may still make, a grant.
	mustWithdraw bool
	// last is the latest try that outlasted its context.
	last *flight
	// unary is the try that is under way as a unary call, if one is. Guarded by the session's mu.
	unary *unaryTry
}

type unaryTry struct {
	since  time.Duration // on the client's clock
	giveUp context.CancelFunc
}

func newAcquisition(s *Session, name string, cfg acquireConfig) (*acquisition, error) {
	key, err := lock.NewKey(cfg.namespace, name)
	if err != nil {
		return nil, err
	}
	if err := lock.CheckMetadata(cfg.metadata); err != nil {
		return nil, err
	}
	a := &acquisition{session: s, key: key, id: lock.RequestID(rand.Text()), cfg: cfg, until: forever}
	if cfg.lease != nil {
		if a.lease, err = lock.RoundTTL("lease", *cfg.lease); err != nil {
			return nil, err
		}
	}
	now := s.client.now()
	a.patience = forever
	if cfg.wait != nil {
		if *cfg.wait < 0 {
			return nil, lock.Invalid("wait", "must not be negative")
		}
		a.until = now + min(*cfg.wait, forever/2)
		a.patience = max(a.until, now+s.client.cfg.callTimeout)
		if *cfg.wait > 0 {
			a.patience = a.until
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.expired(); err != nil {
		return nil, err
	}
	s.inFlight[a.id] = a
	return a, nil
}

// run tries until granted, or refused for good, or out of time.
func (a *acquisition) run(caller, work context.Context) (*Lock, error) {
	pauses := backoff{base: retryBase, most: retryMost}
	for {
		l, err := a.try(caller, work)
		if err == nil {
			return l, nil
		}
		if lock.IsAmbiguous(err) || work.Err() != nil {
			a.mustWithdraw = true
		}
		now := a.session.client.now()
		left := a.patience - now
		if _, held := errors.AsType[*HeldError](err); held {
			left = a.until - now
		}
		if !lock.IsRetryable(err) || left <= 0 || work.Err() != nil {
			return nil, err
		}
		a.session.retrying()
		if cause := pause(work, min(left, pauses.next(retryAfter(err)))); cause != nil {
			return nil, interrupted(cause)
		}
	}
}

// try sends the acquire once and takes the answer.
func (a *acquisition) try(caller, work context.Context) (*Lock, error) {
	c := a.session.client
	wait := a.remainingWait(work)
	a.tries++
	var sent time.Duration
	var resp *v1.AcquireResponse
	err := c.try(work, wait+c.cfg.tryTimeout(), func(ctx context.Context) (err error) {
		sent = c.now()
		resp, a.last, err = c.acquire(ctx, a.request(wait), a.alone)
		return err
	})
	if err != nil {
		return nil, err
	}
	switch {
	case resp.GetHeld() != nil:
		return nil, heldError(a.key, resp.GetHeld())
	case resp.GetGrant().GetToken() > 0:
		return a.admit(caller, sent, resp.GetGrant())
	}
	return nil, errMalformed
}

// remainingWait is what is left of the wait: until the caller's deadline at most.
func (a *acquisition) remainingWait(ctx context.Context) time.Duration {
	wait := min(maxWait, max(0, a.until-a.session.client.now()))
	if deadline, ok := ctx.Deadline(); ok {
		wait = min(wait, max(0, time.Until(deadline)))
	}
	return wait
}

// alone sends one try as a unary call.
func (a *acquisition) alone(
	ctx context.Context, req *connect.Request[v1.AcquireRequest],
) (*connect.Response[v1.AcquireResponse], error) {
	s, wait := a.session, min(unaryWait, req.Msg.GetWait().AsDuration())
	if wait > 0 {
		req.Msg.Wait = durationpb.New(wait)
	}
	ctx, cancel := context.WithTimeout(ctx, wait+s.client.cfg.tryTimeout())
	defer cancel()
	under := func(try *unaryTry) {
		s.mu.Lock()
		defer s.mu.Unlock()
		a.unary = try
	}
	under(&unaryTry{since: s.client.now(), giveUp: cancel})
	defer under(nil)
	return s.client.lockRPC.Acquire(ctx, req)
}

// recall gives up a unary try that was granted long enough ago for its answer to be here:
// its connection is dead. The next try gets the same grant. The caller holds the session's mu.
func (a *acquisition) recall() {
	s := a.session
	patience := usable(s.ttl, s.client.cfg.margin) / triesPerDeadline // as for a heartbeat
	if a.unary != nil && s.client.now()-a.unary.since >= patience {
		a.unary.giveUp()
	}
}

func (a *acquisition) request(wait time.Duration) *v1.AcquireRequest {
	req := &v1.AcquireRequest{
		Namespace: a.key.Namespace(),
		Key:       a.key.Name(),
		SessionId: a.session.id.Reveal(),
		RequestId: string(a.id),
		Metadata:  a.cfg.metadata,
	}
	if wait > 0 {
		req.Wait = durationpb.New(wait)
	}
	if a.lease > 0 {
		req.Lease = durationpb.New(a.lease)
	}
	return req
}

// admit makes a Lock of a grant, unless its answer came too late to be used.
func (a *acquisition) admit(caller context.Context, sent time.Duration, grant *v1.Grant) (*Lock, error) {
	s, cfg := a.session, a.session.client.cfg
	l := &Lock{
		session: s,
		holding: holding{a.key, lock.Token(grant.GetToken())},
		signed:  grant.GetSignedToken(),
		retried: a.tries > 1,
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.expired(); err != nil {
		a.mustWithdraw = true
		return nil, err
	}
	now := s.client.now()
	// The server may cap grants whose acquirer asked for no lease.
	if a.lease > 0 || grant.GetLeaseRemaining() != nil {
		l.leased = cmp.Or(a.lease, lock.MaxTTL)
		waited := within(grant.GetWaited().AsDuration(), now-sent)
		remaining := within(grant.GetLeaseRemaining().AsDuration(), l.leased)
		l.deadline = cfg.reckon(sent+waited, now, remaining, cfg.margin)
		if now >= l.deadline {
			a.mustWithdraw = true
			return nil, &lock.Error{Code: lock.CodeLost, Message: "the grant was answered after its deadline"}
		}
	}
	if l.retried {
		s.suspectNow()
	}
	l.ctx, l.cancel = context.WithCancelCause(context.WithoutCancel(caller))
	s.locks[l.holding] = l
	delete(s.inFlight, a.id) // in the same step: a grant is wanted or known, never neither
	signal(s.kick)
	return l, nil
}

// withdraw makes sure that no grant stays behind. It waits for the last try to
// end, since a withdrawal that overtakes an acquire finds nothing to withdraw.
func (a *acquisition) withdraw() {
	s := a.session
	s.retrying()
	s.client.detached(func(ctx context.Context) {
		if a.last != nil {
			_ = s.client.try(ctx, s.client.cfg.tryTimeout(), func(ctx context.Context) error {
				select {
				case <-a.last.ended:
				case <-ctx.Done():
				}
				return nil
			})
		}
		_ = s.client.retry(ctx, func(ctx context.Context) error {
			return s.client.abandon(ctx, &v1.AbandonRequest{
				Namespace: a.key.Namespace(),
				Key:       a.key.Name(),
				SessionId: s.id.Reveal(),
				RequestId: string(a.id),
			})
		})
	})
}
