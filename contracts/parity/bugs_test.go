package parity_test

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/fencelock/fencelock/core/lock"
	"github.com/fencelock/fencelock/core/port"
)

type forgetful struct{ port.Catalog }

func (f forgetful) Sessions(ctx context.Context, page port.Page) ([]lock.Session, string, error) {
	list, next, err := f.Catalog.Sessions(ctx, page)
	for i := range list {
		list[i].Metadata = nil
	}
	return list, next, err
}

// stranger has never heard of anybody's session.
type stranger struct{ port.SessionRegistry }

func (stranger) Heartbeat(context.Context, lock.SessionID) (port.Vitals, error) {
	return port.Vitals{}, lock.ErrSessionDead
}

// promises answers with the lease that was asked for and renews the old one.
type promises struct{ port.LockStore }

func (p promises) Extend(
	ctx context.Context, key lock.Key, session lock.SessionID, token lock.Token, lease time.Duration,
) (lock.Grant, error) {
	g, err := p.LockStore.Extend(ctx, key, session, token, 0)
	if g.Lease > 0 {
		g.LeaseRemaining = lease
	}
	return g, err
}

// lagging does not find a grant the first time that it is asked for one.
type lagging struct {
	port.LockStore
	mu   sync.Mutex
	last lock.Token
}

func (l *lagging) Extend(
	ctx context.Context, key lock.Key, session lock.SessionID, token lock.Token, lease time.Duration,
) (lock.Grant, error) {
	l.mu.Lock()
	fresh := token > l.last
	l.last = max(l.last, token)
	l.mu.Unlock()
	if fresh {
		return lock.Grant{}, lock.ErrLost
	}
	return l.LockStore.Extend(ctx, key, session, token, lease)
}

// greedy hands on whatever grant it finds if the one that was named is over.
type greedy struct {
	port.Handover
	locks port.LockStore
}

func (g greedy) Handoff(ctx context.Context, from port.GrantRef, to port.GrantRequest) (lock.Grant, error) {
	grant, err := g.Handover.Handoff(ctx, from, to)
	if lock.CodeOf(err) != lock.CodeLost {
		return grant, err
	}
	info, err := g.locks.Read(ctx, from.Key)
	if err != nil || !info.Held {
		return lock.Grant{}, lock.ErrLost
	}
	from.Session, from.Token = info.Grant.Session, info.Grant.Token
	return g.Handover.Handoff(ctx, from, to)
}

// flat knows one namespace.
type flat struct{ port.LockStore }

func (f flat) TryInsert(ctx context.Context, req port.GrantRequest) (port.Attempt, error) {
	req.Key, _ = lock.NewKey("", req.Key.Name())
	return f.LockStore.TryInsert(ctx, req)
}

// memory is of the first request that was refused.
type memory struct {
	mu      sync.Mutex
	refused port.GrantRequest
}

// remembering grants that request when the key is released, whether its client still wants it or not.
type remembering struct {
	port.LockStore
	*memory
}

func (r remembering) TryInsert(ctx context.Context, req port.GrantRequest) (port.Attempt, error) {
	a, err := r.LockStore.TryInsert(ctx, req)
	r.mu.Lock()
	defer r.mu.Unlock()
	if err == nil && !a.Granted && r.refused.RequestID == "" {
		r.refused = req
	}
	return a, err
}

func (r remembering) DeleteIfOwner(
	ctx context.Context, key lock.Key, session lock.SessionID, token lock.Token,
) (bool, error) {
	ok, err := r.LockStore.DeleteIfOwner(ctx, key, session, token)
	r.mu.Lock()
	defer r.mu.Unlock()
	if ok && r.refused.Key == key {
		_, _ = r.LockStore.TryInsert(ctx, r.refused)
	}
	return ok, err
}

// tidy withdraws the grant of a call that its caller has left.
type tidy struct {
	port.LockStore
	handover port.Handover
}

func (t tidy) TryInsert(ctx context.Context, req port.GrantRequest) (port.Attempt, error) {
	a, err := t.LockStore.TryInsert(ctx, req)
	if ctx.Err() != nil {
		_, _ = t.handover.Abandon(context.WithoutCancel(ctx), req.Key, req.Session, req.RequestID)
	}
	return a, err
}

// nameless keeps no reasons.
type nameless struct{ port.LockStore }

func (n nameless) Revoke(ctx context.Context, req port.RevokeRequest) (lock.Revocation, error) {
	req.Reason = "because of something"
	return n.LockStore.Revoke(ctx, req)
}

// merciful extends what is over.
type merciful struct{ port.LockStore }

func (m merciful) Extend(
	ctx context.Context, key lock.Key, session lock.SessionID, token lock.Token, lease time.Duration,
) (lock.Grant, error) {
	g, err := m.LockStore.Extend(ctx, key, session, token, lease)
	if lock.CodeOf(err) == lock.CodeLost {
		return lock.Grant{Key: key, Session: session, Token: token}, nil
	}
	return g, err
}

// slow takes its time to say held, whatever the context says.
type slow struct{ port.LockStore }

func (s slow) TryInsert(ctx context.Context, req port.GrantRequest) (port.Attempt, error) {
	a, err := s.LockStore.TryInsert(ctx, req)
	if err == nil && !a.Granted {
		<-time.After(8 * time.Second)
	}
	return a, err
}

// shy says held the first two times, although nobody is there.
type shy struct {
	port.LockStore
	mu    sync.Mutex
	tries int
}

func (s *shy) TryInsert(ctx context.Context, req port.GrantRequest) (port.Attempt, error) {
	s.mu.Lock()
	s.tries++
	first := s.tries <= 2
	s.mu.Unlock()
	if first {
		return port.Attempt{}, nil
	}
	return s.LockStore.TryInsert(ctx, req)
}

// deafWaiter never wakes anybody.
type deafWaiter struct{}

func (deafWaiter) Register(lock.Key, lock.Token) port.Wake { return deafWake{} }

type deafWake struct{}

func (deafWake) Fired() <-chan struct{} { return nil }
func (deafWake) Cancel()                {}

// deafFeed brings no news.
type deafFeed struct{ port.Feed }

func (f deafFeed) Subscribe() port.Subscription {
	s := f.Feed.Subscribe()
	events := make(chan port.FeedEvent)
	go func() { // ends with the subscription
		defer close(events)
		for range s.Events() { // nobody hears of it
		}
	}()
	return deafSubscription{s, events}
}

type deafSubscription struct {
	port.Subscription
	events chan port.FeedEvent
}

func (s deafSubscription) Events() <-chan port.FeedEvent { return s.events }

// vague does not say when the holder can be gone.
type vague struct{ port.LockStore }

func (v vague) TryInsert(ctx context.Context, req port.GrantRequest) (port.Attempt, error) {
	a, err := v.LockStore.TryInsert(ctx, req)
	a.Holder.FreeWithin = 0
	return a, err
}

// oneTry answers the second try like the first, without asking the store:
// what a waiter gets that does not try again once it has registered.
type oneTry struct {
	port.LockStore
	mu    sync.Mutex
	first map[lock.RequestID]*port.Attempt
}

func (o *oneTry) TryInsert(ctx context.Context, req port.GrantRequest) (port.Attempt, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	a, tried := o.first[req.RequestID]
	if tried && a != nil {
		o.first[req.RequestID] = nil
		return *a, nil
	}
	got, err := o.LockStore.TryInsert(ctx, req)
	if err == nil && !got.Granted && !tried {
		if o.first == nil {
			o.first = map[lock.RequestID]*port.Attempt{}
		}
		o.first[req.RequestID] = &got
	}
	return got, err
}

// passesOver takes the first session that a grant is handed to for dead.
type passesOver struct {
	port.Handover
	once sync.Once
}

func (p *passesOver) Handoff(ctx context.Context, from port.GrantRef, to port.GrantRequest) (lock.Grant, error) {
	var err error
	p.once.Do(func() { err = lock.ErrSessionDead })
	if err != nil {
		return lock.Grant{}, err
	}
	return p.Handover.Handoff(ctx, from, to)
}

// clannish passes a released key on to somebody else who asks this server for it, and waits for one who does: the bug must not
// depend on whether the line has asked before the release.
type clannish struct {
	port.LockStore
	handover port.Handover
	mu       sync.Mutex
	asked    []port.GrantRequest
	// more is closed when somebody has asked, and made anew.
	more chan struct{}
}

// clanPatience is for a key that nobody else will ask for.
const clanPatience = 5 * time.Second

func (c *clannish) TryInsert(ctx context.Context, req port.GrantRequest) (port.Attempt, error) {
	a, err := c.LockStore.TryInsert(ctx, req)
	if err == nil && !a.Granted {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.asked = append(c.asked, req)
		if c.more != nil {
			close(c.more)
			c.more = nil
		}
	}
	return a, err
}

// known returns who has asked, and what is closed when somebody else does.
func (c *clannish) known() ([]port.GrantRequest, <-chan struct{}) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.more == nil {
		c.more = make(chan struct{})
	}
	return slices.Clone(c.asked), c.more
}

func (c *clannish) DeleteIfOwner(
	ctx context.Context, key lock.Key, session lock.SessionID, token lock.Token,
) (bool, error) {
	from := port.GrantRef{Key: key, Session: session, Token: token}
	patience := time.After(clanPatience)
	for {
		asked, more := c.known()
		for _, to := range slices.Backward(asked) {
			if to.Key != key || to.Session == session {
				continue
			}
			if _, err := c.handover.Handoff(ctx, from, to); err == nil {
				return true, nil
			}
		}
		select {
		case <-more:
			continue
		case <-patience:
		case <-ctx.Done():
		}
		return c.LockStore.DeleteIfOwner(ctx, key, session, token)
	}
}

// hopeful takes no answer for a good one.
type hopeful struct{ port.SessionRegistry }

func (h hopeful) Heartbeat(ctx context.Context, id lock.SessionID) (port.Vitals, error) {
	v, err := h.SessionRegistry.Heartbeat(ctx, id)
	if lock.IsRetryable(err) {
		return port.Vitals{Remaining: lock.MinTTL, TTL: lock.MinTTL}, nil
	}
	return v, err
}
