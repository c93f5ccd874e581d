package etcd

import (
	"context"
	"slices"
	"strings"
	"sync"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/fencelock/fencelock/core/lock"
	"github.com/fencelock/fencelock/core/port"
)

// maxOps is how many operations this package puts into one Txn; etcd's default limit is 128.
const maxOps = 100

// OpenSession implements port.SessionRegistry: one lease, and the session record on it.
func (s *Store) OpenSession(ctx context.Context, req port.OpenRequest) (lock.Session, error) {
	own, err := s.newLease(ctx, req.TTL)
	if err != nil {
		return lock.Session{}, err
	}
	session := lock.Session{
		ID: lock.NewSessionID(), Owner: req.Owner, TTL: own.ttl, CreatedAt: time.Now(), Metadata: req.Metadata,
	}
	record := sessionRecord{
		ID: session.ID.Reveal(), Owner: string(req.Owner), TTL: wholeSeconds(own.ttl),
		CreatedAt: session.CreatedAt.UnixNano(), Metadata: req.Metadata,
	}
	key := s.keys.session(session.ID)
	resp, err := s.commit(ctx, writes, transaction{
		when: []clientv3.Cmp{clientv3.Compare(clientv3.CreateRevision(key), "=", 0)},
		then: []clientv3.Op{clientv3.OpPut(key, encode(record), clientv3.WithLease(clientv3.LeaseID(own.id)))},
	})
	if err == nil && !resp.Succeeded {
		err = lock.Contention("the new session id is taken", false, nil)
	}
	if err != nil {
		// Nobody has learned the id, so whatever became of it can go.
		s.sweeper.discard(own.id)
		return lock.Session{}, err
	}
	m := &member{lease: own.id, owner: req.Owner, ttl: own.ttl}
	m.guarantee(own.until)
	s.members.add(session.ID, m)
	return session, nil
}

// CloseSession implements port.SessionRegistry. The end of the lease is the one step that frees everything.
// The grants that it ended are those of the keys that hung on the lease just before, as they were
// one revision before that step. One that another call makes between the two may be missing in the count.
func (s *Store) CloseSession(ctx context.Context, id lock.SessionID) (int, error) {
	m, err := s.members.find(ctx, id)
	if err != nil {
		return 0, unlessDead(err)
	}
	p, err := s.askLease(ctx, m.lease, true)
	if err != nil {
		return 0, err
	}
	rev, ended, err := s.endLease(ctx, m.lease)
	if err != nil {
		return 0, err
	}
	s.members.forget(id)
	if !ended {
		return 0, nil
	}
	s.waiters.vigil.expect(rev, s.now())
	s.feed.vigil.expect(rev, s.now())
	count, err := s.countEnded(ctx, s.grantKeys(p), m.lease, rev)
	if err != nil {
		return 0, lock.Contention("the session is closed, its grants could not be counted", true, err)
	}
	return count, nil
}

// countEnded counts the grants that ended with the session's lease at the revision, and gets rid of their own leases.
func (s *Store) countEnded(ctx context.Context, keys []lock.Key, lease, rev int64) (int, error) {
	views, err := s.viewsAt(ctx, keys, epoch{}, rev-1)
	if err != nil {
		return 0, err
	}
	count := 0
	for _, v := range views {
		if !v.stands() || v.grant.lease != lease {
			continue
		}
		count++
		if v.limit != nil {
			s.sweeper.discard(v.limit.lease)
		}
	}
	return count, nil
}

// grantKeys returns the keys of the grants that hang on a lease, in order.
func (s *Store) grantKeys(p pulseOf) []lock.Key {
	var keys []lock.Key
	for _, raw := range p.keys {
		if key, ok := s.keys.lockKey(grantFolder, raw); ok {
			keys = append(keys, key)
		}
	}
	slices.SortFunc(keys, func(a, b lock.Key) int { return strings.Compare(a.String(), b.String()) })
	return keys
}

// LocksOf implements port.SessionRegistry. The keys on the lease are the
// leader's own knowledge, which a deposed leader can have wrong; so they count only if a
// linearizable read after it shows that the term of the leader is still the same.
func (s *Store) LocksOf(ctx context.Context, id lock.SessionID) ([]lock.Grant, error) {
	for range maxRounds {
		m, err := s.members.reread(ctx, id)
		if err != nil {
			return nil, err
		}
		p, err := s.askLease(ctx, m.lease, true)
		if err != nil {
			return nil, err
		}
		grants, settled, err := s.standingOf(ctx, id, m, s.grantKeys(p), p.term)
		if settled || err != nil {
			return grants, err
		}
	}
	return nil, errCrowded()
}

// standingOf reads those of the keys that the session holds, all at one
// revision; settled is false if the leader has changed since the term.
func (s *Store) standingOf(
	ctx context.Context, id lock.SessionID, m *member, keys []lock.Key, term uint64,
) (grants []lock.Grant, settled bool, err error) {
	ops := []clientv3.Op{clientv3.OpGet(s.keys.session(id)), clientv3.OpGet(s.keys.meta())}
	resp, err := s.fetch(ctx, ops...)
	if err != nil {
		return nil, false, err
	}
	if len(resp.Responses[0].GetResponseRange().GetKvs()) == 0 {
		s.members.forget(id)
		return nil, true, lock.ErrSessionDead
	}
	e, err := decodeEpoch(resp.Responses[1].GetResponseRange().GetKvs())
	if err != nil {
		return nil, false, err
	}
	if resp.Header.GetRaftTerm() != term {
		return nil, false, nil
	}
	views, err := s.viewsAt(ctx, keys, e, resp.Header.GetRevision())
	if err != nil {
		return nil, false, err
	}
	views = slices.DeleteFunc(views, func(v *view) bool { return !v.live() || v.grant.lease != m.lease })
	grants, err = s.grantsOf(ctx, views)
	return grants, err == nil, err
}

// grantsOf returns the live grants of the views with what is left of their leases. The views are of one
// revision, and so is the list: a grant that has ended since is on it, with nothing left. To leave it
// out would show half of a session's end.
func (s *Store) grantsOf(ctx context.Context, views []*view) ([]lock.Grant, error) {
	type result struct {
		grant lock.Grant
		err   error
	}
	results := make([]result, len(views))
	const atOnce = 16
	for start := 0; start < len(views); start += atOnce {
		var asked sync.WaitGroup
		for i := start; i < min(start+atOnce, len(views)); i++ {
			asked.Go(func() {
				r := &results[i]
				r.grant, _, r.err = s.withRemaining(ctx, views[i])
			})
		}
		asked.Wait()
	}
	var grants []lock.Grant
	for _, r := range results {
		if r.err != nil {
			return nil, r.err
		}
		grants = append(grants, r.grant)
	}
	return grants, nil
}

// viewsAt reads the grants of many keys as they were at the revision.
func (s *Store) viewsAt(ctx context.Context, keys []lock.Key, e epoch, rev int64) ([]*view, error) {
	var views []*view
	for batch := range slices.Chunk(keys, maxOps/2) {
		var ops []clientv3.Op
		for _, key := range batch {
			ops = append(ops, clientv3.OpGet(s.keys.grant(key), clientv3.WithRev(rev)),
				clientv3.OpGet(s.keys.limit(key), clientv3.WithRev(rev)))
		}
		resp, err := s.fetch(ctx, ops...)
		if err != nil {
			return nil, err
		}
		for i, key := range batch {
			v := &view{key: key, rev: rev, epoch: e}
			err := v.fill(resp.Responses[2*i].GetResponseRange().GetKvs(), resp.Responses[2*i+1].GetResponseRange().GetKvs())
			if err != nil {
				return nil, err
			}
			views = append(views, v)
		}
	}
	return views, nil
}

// fill reads the grant and its lease from the answers for their keys.
func (v *view) fill(grant, limits []*mvccpb.KeyValue) error {
	var err error
	if len(grant) > 0 {
		if v.grant, err = decodeGrant(v.key, grant[0]); err != nil {
			return err
		}
	}
	if len(limits) > 0 {
		r, err := decode[capRecord](limits[0])
		if err != nil {
			return err
		}
		v.limit = &limit{lease: limits[0].GetLease(), rev: limits[0].GetModRevision(), length: seconds(r.Lease)}
	}
	return nil
}
