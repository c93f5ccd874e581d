package etcd

import (
	"bytes"
	"cmp"
	"context"
	"errors"
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
		Owner: string(req.Owner), TTL: wholeSeconds(own.ttl), CreatedAt: session.CreatedAt.UnixNano(), Metadata: req.Metadata,
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

// CloseSession implements port.SessionRegistry. The end of the lease is the one step that
// frees everything. How many grants that ended is read off a watch: the deletions at the revision
// of that step, whatever happened a moment earlier. The watch is opened at the same time, so that a
// close needs no answer before it is sent.
func (s *Store) CloseSession(ctx context.Context, id lock.SessionID) (int, error) {
	m, err := s.members.find(ctx, id)
	if err != nil {
		return 0, unlessDead(err)
	}
	ctx, cancel := s.call(ctx)
	defer cancel()
	opened := make(chan clientv3.WatchChan, 1)
	if !s.spawn(func() { opened <- s.deletions(ctx, 0) }) { // ends with ctx
		return 0, translate(errClosed, reads)
	}
	rev, ended, err := s.endLease(ctx, m.lease)
	if err != nil {
		return 0, err
	}
	s.members.forget(id)
	if !ended {
		return 0, nil
	}
	events := <-opened
	created := <-events
	if created.Err() != nil || !created.Created {
		return 0, translate(cmp.Or(created.Err(), ctx.Err(), errWatchEnded), writes)
	}
	if created.Header.GetRevision() >= rev {
		// It came too late. One from the past takes up to 100 ms and misses nothing.
		events = s.deletions(ctx, rev)
	}
	return s.countEnded(ctx, events, id, rev)
}

// deletions watches for the end of grants, of sessions and of leases of grants, from a revision
// on; 0 is now.
func (s *Store) deletions(ctx context.Context, rev int64) clientv3.WatchChan {
	return s.clients.Watcher.Watch(ctx, s.keys.folder(grantFolder), clientv3.WithRange(s.keys.folder(afterCaps)),
		clientv3.WithFilterPut(), clientv3.WithPrevKV(), clientv3.WithCreatedNotify(), clientv3.WithRev(rev))
}

// errWatchEnded is the cause where a watch ends and does not say why.
var errWatchEnded = errors.New("the watch ended")

// countEnded counts the live grants that ended at the revision together with the session's record.
func (s *Store) countEnded(
	ctx context.Context, deletions clientv3.WatchChan, id lock.SessionID, rev int64,
) (int, error) {
	count, record := 0, []byte(s.keys.session(id))
	var capped []lock.Key
	for resp := range deletions {
		if err := resp.Err(); err != nil {
			return 0, translate(err, writes)
		}
		for _, ev := range resp.Events {
			if ev.GetKv().GetModRevision() != rev {
				continue
			}
			if key, isGrant := s.keys.lockKey(grantFolder, ev.GetKv().GetKey()); isGrant && ev.GetPrevKv() != nil {
				if g, err := decodeGrant(key, ev.GetPrevKv()); err == nil && g.capped() {
					capped = append(capped, key)
				} else {
					count++
				}
			}
			// Keys of a lease are deleted in order, so the record comes last.
			if bytes.Equal(ev.GetKv().GetKey(), record) {
				live, err := s.countLimits(ctx, capped, rev)
				return count + live, err
			}
		}
	}
	return 0, translate(cmp.Or(ctx.Err(), errWatchEnded), writes)
}

// countLimits counts which of the keys had a lease of their own just before
// the revision, and gets rid of those leases.
func (s *Store) countLimits(ctx context.Context, keys []lock.Key, rev int64) (int, error) {
	count := 0
	for batch := range slices.Chunk(keys, maxOps) {
		var ops []clientv3.Op
		for _, key := range batch {
			ops = append(ops, clientv3.OpGet(s.keys.limit(key), clientv3.WithRev(rev-1)))
		}
		resp, err := s.fetch(ctx, ops...)
		if err != nil {
			return 0, lock.Contention("the session is closed, its grants could not be counted", true, err)
		}
		for _, answer := range resp.Responses {
			for _, kv := range answer.GetResponseRange().GetKvs() {
				count++
				s.sweeper.discard(kv.GetLease())
			}
		}
	}
	return count, nil
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
		var keys []lock.Key
		for _, raw := range p.keys {
			if key, ok := s.keys.lockKey(grantFolder, raw); ok {
				keys = append(keys, key)
			}
		}
		slices.SortFunc(keys, func(a, b lock.Key) int { return strings.Compare(a.String(), b.String()) })
		grants, settled, err := s.standingOf(ctx, id, m, keys, p.term)
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

// grantsOf returns the live grants of the views with what is left of their leases.
func (s *Store) grantsOf(ctx context.Context, views []*view) ([]lock.Grant, error) {
	type result struct {
		grant lock.Grant
		live  bool
		err   error
	}
	results := make([]result, len(views))
	const atOnce = 16
	for start := 0; start < len(views); start += atOnce {
		var asked sync.WaitGroup
		for i := start; i < min(start+atOnce, len(views)); i++ {
			asked.Go(func() {
				r := &results[i]
				r.grant, r.live, r.err = s.withRemaining(ctx, views[i])
			})
		}
		asked.Wait()
	}
	var grants []lock.Grant
	for _, r := range results {
		if r.err != nil {
			return nil, r.err
		}
		if r.live {
			grants = append(grants, r.grant)
		}
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
