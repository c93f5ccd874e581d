package reference

import (
	"context"
	"fmt"
	"time"

	"github.com/fencelock/fencelock/core/lock"
	"github.com/fencelock/fencelock/core/port"
)

// TryInsert implements [port.LockStore].
func (c *Client) TryInsert(ctx context.Context, req port.GrantRequest) (port.Attempt, error) {
	return call(ctx, c, func(now time.Time) (port.Attempt, error) { return c.world.steps.tryInsert(now, req) })
}

// Extend implements [port.LockStore].
func (c *Client) Extend(
	ctx context.Context, key lock.Key, session lock.SessionID, token lock.Token, lease time.Duration,
) (lock.Grant, error) {
	ref := port.GrantRef{Key: key, Session: session, Token: token}
	return call(ctx, c, func(now time.Time) (lock.Grant, error) { return c.world.steps.extend(now, ref, lease) })
}

// DeleteIfOwner implements [port.LockStore].
func (c *Client) DeleteIfOwner(
	ctx context.Context, key lock.Key, session lock.SessionID, token lock.Token,
) (bool, error) {
	ref := port.GrantRef{Key: key, Session: session, Token: token}
	return call(ctx, c, func(time.Time) (bool, error) { return c.world.steps.release(ref), nil })
}

// Read implements [port.LockStore].
func (c *Client) Read(ctx context.Context, key lock.Key) (lock.Info, error) {
	return call(ctx, c, func(now time.Time) (lock.Info, error) { return c.world.steps.read(now, key), nil })
}

// Revoke implements [port.LockStore].
func (c *Client) Revoke(ctx context.Context, req port.RevokeRequest) (lock.Revocation, error) {
	return call(ctx, c, func(now time.Time) (lock.Revocation, error) { return c.world.steps.revoke(now, req) })
}

// ReapExpired implements [port.LockStore]. The world tidies itself.
func (c *Client) ReapExpired(ctx context.Context) (int, error) {
	return call(ctx, c, func(time.Time) (int, error) { return 0, nil })
}

// BackendID implements [port.LockStore].
func (c *Client) BackendID() string { return "reference" }

// OpenSession implements [port.SessionRegistry].
func (c *Client) OpenSession(ctx context.Context, req port.OpenRequest) (lock.Session, error) {
	return call(ctx, c, func(now time.Time) (lock.Session, error) { return c.world.steps.open(now, req), nil })
}

// Heartbeat implements [port.SessionRegistry]. The guarantee counts from the return, so
// the time that the answer was held back is off it.
func (c *Client) Heartbeat(ctx context.Context, session lock.SessionID) (port.Vitals, error) {
	p, err := call(ctx, c, func(now time.Time) (pulse, error) { return c.world.steps.heartbeat(now, session) })
	if err != nil {
		return port.Vitals{}, err
	}
	return port.Vitals{Remaining: max(time.Until(p.deadline), 0), TTL: p.ttl}, nil
}

// CloseSession implements [port.SessionRegistry].
func (c *Client) CloseSession(ctx context.Context, session lock.SessionID) (int, error) {
	return call(ctx, c, func(time.Time) (int, error) { return c.world.steps.close(session) })
}

// LocksOf implements [port.SessionRegistry].
func (c *Client) LocksOf(ctx context.Context, session lock.SessionID) ([]lock.Grant, error) {
	return call(ctx, c, func(now time.Time) ([]lock.Grant, error) { return c.world.steps.locksOf(now, session) })
}

// Handoff implements [port.Handover].
func (c *Client) Handoff(ctx context.Context, from port.GrantRef, to port.GrantRequest) (lock.Grant, error) {
	return call(ctx, c, func(now time.Time) (lock.Grant, error) { return c.world.steps.handoff(now, from, to) })
}

// Settle implements [port.Handover].
func (c *Client) Settle(
	ctx context.Context, key lock.Key, session lock.SessionID, id lock.RequestID,
) (grant lock.Grant, ok bool, err error) {
	grant, err = call(ctx, c, func(now time.Time) (g lock.Grant, err error) {
		g, ok, err = c.world.steps.settle(now, key, session, id)
		return g, err
	})
	return grant, ok && err == nil, err
}

// Abandon implements [port.Handover].
func (c *Client) Abandon(
	ctx context.Context, key lock.Key, session lock.SessionID, id lock.RequestID,
) (bool, error) {
	return call(ctx, c, func(time.Time) (bool, error) { return c.world.steps.abandon(key, session, id), nil })
}

// Register implements [port.ReleaseWaiter]. A cut-off client may register: it
// looks for itself when its link is back.
func (c *Client) Register(key lock.Key, _ lock.Token) port.Wake {
	c.world.mu.Lock()
	defer c.world.mu.Unlock()
	return c.world.steps.register(c, key)
}

// Subscribe implements [port.Feed].
func (c *Client) Subscribe() port.Subscription {
	c.world.mu.Lock()
	defer c.world.mu.Unlock()
	s := &subscription{client: c, events: make(chan port.FeedEvent, subscriptionBuffer)}
	c.world.subscriptions[s] = struct{}{}
	if c.gone() || c.world.closed {
		s.end()
	} else if c.hears() {
		s.resync()
	}
	return s
}

// listed is one page of a listing.
type listed[E any] struct {
	items []E
	next  string
}

// Grants implements [port.Catalog].
func (c *Client) Grants(ctx context.Context, namespace, prefix string, page port.Page) ([]lock.Grant, string, error) {
	p, err := call(ctx, c, func(now time.Time) (p listed[lock.Grant], err error) {
		p.items, p.next, err = cut(c.world.steps.listGrants(now, namespace, prefix),
			"grants/"+namespace+"/"+prefix, page, false, func(g lock.Grant) string { return g.Key.Name() })
		return p, err
	})
	return p.items, p.next, err
}

// Sessions implements [port.Catalog].
func (c *Client) Sessions(ctx context.Context, page port.Page) ([]lock.Session, string, error) {
	p, err := call(ctx, c, func(time.Time) (p listed[*session], err error) {
		p.items, p.next, err = cut(c.world.listSessions(),
			"sessions", page, false, func(s *session) string { return fmt.Sprintf("%020d", s.serial) })
		return p, err
	})
	sessions := make([]lock.Session, 0, len(p.items))
	for _, s := range p.items {
		sessions = append(sessions, s.view()) // safe without the mutex: a session's public part never changes
	}
	return sessions, p.next, err
}

// Revocations implements [port.Catalog].
func (c *Client) Revocations(ctx context.Context, namespace string, page port.Page) ([]lock.Revocation, string, error) {
	p, err := call(ctx, c, func(time.Time) (p listed[lock.Revocation], err error) {
		p.items, p.next, err = cut(c.world.steps.listRevocations(namespace),
			"revocations/"+namespace, page, true, func(r lock.Revocation) string { return r.ID })
		return p, err
	})
	return p.items, p.next, err
}

// Counts implements [port.Catalog].
func (c *Client) Counts(ctx context.Context) (port.Counts, error) {
	return call(ctx, c, func(time.Time) (port.Counts, error) {
		return port.Counts{Grants: len(c.world.grants), Sessions: len(c.world.sessions)}, nil
	})
}

// Ping implements [port.Custodian].
func (c *Client) Ping(ctx context.Context) error {
	_, err := call(ctx, c, func(time.Time) (struct{}, error) { return struct{}{}, nil })
	return err
}

// RaiseFloor implements [port.Custodian].
func (c *Client) RaiseFloor(ctx context.Context, req port.FloorRequest) (port.FloorRaised, error) {
	return call(ctx, c, func(now time.Time) (port.FloorRaised, error) { return c.world.steps.raiseFloor(now, req), nil })
}
