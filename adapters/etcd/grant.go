package etcd

import (
	"context"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/fencelock/fencelock/core/lock"
	"github.com/fencelock/fencelock/core/port"
)

// expiryDelay is the longest that etcd takes to end a lease that has run out.
const expiryDelay = 2 * time.Second

// TryInsert implements port.LockStore. In the usual case it is one Txn; a
// request with a lease looks first, so that a held key costs no lease.
func (s *Store) TryInsert(ctx context.Context, req port.GrantRequest) (port.Attempt, error) {
	if err := s.watermark.mayGrant(ctx); err != nil {
		return port.Attempt{}, err
	}
	m, err := s.members.find(ctx, req.Session)
	if err != nil {
		return port.Attempt{}, err
	}
	p := proposal{req: req, member: m}
	used := false
	defer func() {
		if p.lease != nil && !used {
			s.sweeper.discard(p.lease.id)
		}
	}()
	v, err := s.hope(ctx, req, m)
	if err != nil {
		return port.Attempt{}, err
	}
	for range maxRounds {
		if attempt, decided, err := s.judge(ctx, v, req, m); decided || err != nil {
			return attempt, err
		}
		if req.Lease > 0 && p.lease == nil {
			if p.lease, err = s.newLease(ctx, req.Lease); err != nil {
				return port.Attempt{}, err
			}
		}
		p.at = time.Now()
		out, err := s.insert(ctx, p, v)
		// An unknown outcome may have used the lease: then it must stay.
		used = out.done || lock.IsAmbiguous(err)
		switch {
		case err != nil:
			return port.Attempt{}, err
		case out.done:
			s.sweeper.discard(out.freed)
			return port.Attempt{Granted: true, Grant: s.made(p, v.epoch.token(out.rev))}, nil
		}
		v = out.view
	}
	return port.Attempt{}, errCrowded()
}

// hope is the view to start from: for a plain request that the key is free,
// which costs nothing and which the Txn will check.
func (s *Store) hope(ctx context.Context, req port.GrantRequest, m *member) (*view, error) {
	if req.Lease > 0 {
		return s.look(ctx, req.Key, req.Session)
	}
	return &view{key: req.Key, epoch: *s.epoch.Load(), session: m.lease}, nil
}

// judge decides an attempt from a view, if it can be decided without a grant.
func (s *Store) judge(ctx context.Context, v *view, req port.GrantRequest, m *member) (port.Attempt, bool, error) {
	if v.session != m.lease {
		s.members.forget(req.Session)
		return port.Attempt{}, true, lock.ErrSessionDead
	}
	switch {
	case v.named(req.Session, req.RequestID):
		g, live, err := s.withRemaining(ctx, v)
		if err != nil || !live {
			return port.Attempt{}, err != nil, err
		}
		return port.Attempt{Granted: true, Grant: g}, true, nil
	case v.live():
		return port.Attempt{Holder: v.holder()}, true, nil
	}
	return port.Attempt{}, false, nil
}

// withRemaining returns the live grant of a view with what is left of its lease; live is
// false where the grant has ended since. That its lease is gone does not say so: an extension has perhaps put
// the grant on another one, and a leader that was deposed does not know the newest.
func (s *Store) withRemaining(ctx context.Context, v *view) (g lock.Grant, live bool, err error) {
	g = v.grant.grant
	now := v
	for range maxRounds {
		if now.limit == nil {
			return g, true, nil
		}
		p, err := s.askLease(ctx, now.limit.lease, false)
		if err != nil {
			return g, false, err
		}
		if p.exists {
			g.LeaseRemaining = max(0, p.until-s.now())
			return g, true, nil
		}
		if now, err = s.look(ctx, v.key, lock.SessionID{}); err != nil {
			return g, false, err
		}
		if !now.is(g.Session, g.Token) {
			return g, false, nil
		}
	}
	return g, false, errCrowded()
}

// holder describes who stands in the way.
func (v *view) holder() lock.Holder {
	g := v.grant.grant
	free := v.grant.sessionTTL
	if v.limit != nil {
		free = min(free, v.limit.length)
	}
	return lock.Holder{
		Owner: g.Owner, Session: g.Session, Token: g.Token, AcquiredAt: g.AcquiredAt,
		FreeWithin: free + expiryDelay,
	}
}

// insert grants in one Txn what the view says can be had.
func (s *Store) insert(ctx context.Context, p proposal, v *view) (outcome, error) {
	when := []clientv3.Cmp{s.unchanged(v.epoch), s.alive(p.req.Session, p.member)}
	resp, err := s.commit(ctx, writes, transaction{
		when:      append(when, s.nothingNew(v)...),
		then:      s.putOps(p, v.epoch.base),
		otherwise: s.viewOps(p.req.Key, p.req.Session),
	})
	if err != nil {
		return outcome{}, err
	}
	return s.outcome(p.req.Key, resp.Header.GetRevision(), resp.Responses, resp.Succeeded)
}

// nothingNew holds while the key is free, or while the dead grant of the view, and what is
// left of it, stand there unchanged.
func (s *Store) nothingNew(v *view) []clientv3.Cmp {
	if v.grant == nil {
		return []clientv3.Cmp{clientv3.Compare(clientv3.CreateRevision(s.keys.grant(v.key)), "=", 0)}
	}
	limit := int64(0)
	if v.limit != nil {
		limit = v.limit.rev
	}
	return []clientv3.Cmp{
		clientv3.Compare(clientv3.ModRevision(s.keys.grant(v.key)), "=", v.grant.rev),
		clientv3.Compare(clientv3.ModRevision(s.keys.limit(v.key)), "=", limit),
	}
}
