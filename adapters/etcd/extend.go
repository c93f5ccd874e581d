package etcd

import (
	"context"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/fencelock/fencelock/core/lock"
)

// Extend implements port.LockStore. The end moves by a new lease under the same key, and only
// where that one ends later than what is left: the grant's key, and so its
// token, is not touched (clauses LOCK-03, LOCK-07).
func (s *Store) Extend(
	ctx context.Context, key lock.Key, session lock.SessionID, token lock.Token, lease time.Duration,
) (lock.Grant, error) {
	for range maxRounds {
		v, err := s.look(ctx, key, session)
		switch {
		case err != nil:
			return lock.Grant{}, err
		case v.session == 0:
			s.members.forget(session)
			return lock.Grant{}, lock.ErrSessionDead
		case !v.is(session, token):
			return lock.Grant{}, lock.ErrLost
		}
		g, live, err := s.withRemaining(ctx, v)
		if err != nil {
			return lock.Grant{}, err
		}
		if !live {
			continue
		}
		want := max(lease, 0)
		if want == 0 {
			want = g.Lease
		}
		if g.Lease == 0 || want <= g.LeaseRemaining {
			return g, nil
		}
		g, done, err := s.prolong(ctx, v, want)
		if done || err != nil {
			return g, err
		}
	}
	return lock.Grant{}, errCrowded()
}

// prolong puts the grant of a view on a new lease, unless the grant or its lease has changed.
func (s *Store) prolong(ctx context.Context, v *view, want time.Duration) (g lock.Grant, done bool, err error) {
	own, err := s.newLease(ctx, want)
	if err != nil {
		return lock.Grant{}, false, err
	}
	g = v.grant.grant
	record := capRecord{Session: g.Session.Reveal(), Base: v.grant.base, Token: int64(g.Token), Lease: wholeSeconds(want)}
	c := v.change(g.Session, []clientv3.Op{clientv3.OpPut(s.keys.limit(v.key), encode(record),
		clientv3.WithLease(clientv3.LeaseID(own.id)), clientv3.WithPrevKV())})
	c.also = []clientv3.Cmp{clientv3.Compare(clientv3.ModRevision(s.keys.limit(v.key)), "=", v.limit.rev)}
	out, err := s.change(ctx, c)
	switch {
	case err != nil:
		if !lock.IsAmbiguous(err) {
			s.sweeper.discard(own.id)
		}
		return lock.Grant{}, false, err
	case !out.done:
		s.sweeper.discard(own.id)
		return lock.Grant{}, false, nil
	}
	s.sweeper.discardLate(out.freed)
	g.LeaseRemaining = own.remaining(s.now())
	return g, true, nil
}
