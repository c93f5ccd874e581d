package etcd

import (
	"context"
	"errors"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/fencelock/fencelock/core/lock"
	"github.com/fencelock/fencelock/core/port"
)

// Handoff implements port.Handover: a put over the grant key, since etcd
// refuses to delete and put one key in one Txn. The new ModRevision is the new token.
func (s *Store) Handoff(ctx context.Context, from port.GrantRef, to port.GrantRequest) (lock.Grant, error) {
	if err := s.watermark.mayGrant(ctx); err != nil {
		return lock.Grant{}, err
	}
	giver, taker, err := s.pair(ctx, from, to)
	if err != nil {
		return lock.Grant{}, err
	}
	p := proposal{req: to, member: taker, at: time.Now()}
	if to.Lease > 0 {
		if p.lease, err = s.newLease(ctx, to.Lease); err != nil {
			return lock.Grant{}, err
		}
	}
	g, used, err := s.pass(ctx, from, p, giver)
	if p.lease != nil && !used {
		s.sweeper.discard(p.lease.id)
	}
	return g, err
}

// pair finds both sessions. A dead giver has lost what it would hand over,
// which counts before the taker's death does.
func (s *Store) pair(ctx context.Context, from port.GrantRef, to port.GrantRequest) (giver, taker *member, err error) {
	giver, err = s.members.find(ctx, from.Session)
	if errors.Is(err, lock.ErrSessionDead) {
		return nil, nil, lock.ErrLost
	}
	if err != nil {
		return nil, nil, err
	}
	taker, err = s.members.find(ctx, to.Session)
	if !errors.Is(err, lock.ErrSessionDead) {
		return giver, taker, err
	}
	v, failure := s.look(ctx, from.Key, to.Session)
	if failure != nil {
		return nil, nil, failure
	}
	if !v.is(from.Session, from.Token) {
		return nil, nil, lock.ErrLost
	}
	return nil, nil, err
}

// pass hands over in one Txn; used says whether the new grant's lease is, or may be, in use.
func (s *Store) pass(
	ctx context.Context, from port.GrantRef, p proposal, giver *member,
) (g lock.Grant, used bool, err error) {
	e := *s.epoch.Load()
	for range maxRounds {
		out, err := s.change(ctx, change{
			key: from.Key, epoch: e, rev: int64(from.Token) - e.base, lease: giver.lease, asks: p.req.Session,
			also: []clientv3.Cmp{s.alive(p.req.Session, p.member)},
			ops:  s.putOps(p, e.base),
		})
		switch {
		case err != nil:
			return lock.Grant{}, lock.IsAmbiguous(err), err
		case out.done:
			s.sweeper.discard(out.freed)
			return s.made(p, e.token(out.rev)), true, nil
		case !out.view.is(from.Session, from.Token):
			return lock.Grant{}, false, lock.ErrLost
		case out.view.session != p.member.lease:
			s.members.forget(p.req.Session)
			return lock.Grant{}, false, lock.ErrSessionDead
		}
		e = out.view.epoch
	}
	return lock.Grant{}, false, errCrowded()
}
