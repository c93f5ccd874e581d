package etcd

import (
	"context"
	"strings"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/fencelock/fencelock/core/lock"
	"github.com/fencelock/fencelock/core/port"
)

// maxFloor leaves room for revisions above the highest floor.
const maxFloor = lock.Token(1) << 62

// Ping implements port.Custodian. It asks the servers that could not be asked for their
// version before, too. A Store whose watches are stuck cannot grant in time to who waits.
func (s *Store) Ping(ctx context.Context) error {
	if err := s.watermark.mayGrant(ctx); err != nil {
		return err
	}
	resp, err := s.fetch(ctx, clientv3.OpGet(s.keys.meta()))
	if err != nil {
		return err
	}
	e, err := decodeEpoch(resp.Responses[0].GetResponseRange().GetKvs())
	if err != nil {
		return err
	}
	s.learn(e)
	for _, v := range []*vigil{&s.waiters.vigil, &s.feed.vigil} {
		if err := v.check(s.now()); err != nil {
			return err
		}
	}
	return s.gate.ready(ctx)
}

// RaiseFloor implements port.Custodian. One Txn raises the base and deletes every grant, so no
// grant of an older base is left for anyone to believe in.
func (s *Store) RaiseFloor(ctx context.Context, req port.FloorRequest) (port.FloorRaised, error) {
	if req.Above < 0 || req.Above > maxFloor {
		return port.FloorRaised{}, lock.Invalid("above", "must be 0 to 2^62")
	}
	release, err := s.turn(ctx)
	if err != nil {
		return port.FloorRaised{}, err
	}
	defer release()
	for range maxRounds {
		resp, err := s.fetch(ctx, clientv3.OpGet(s.keys.meta()))
		if err != nil {
			return port.FloorRaised{}, err
		}
		e, err := decodeEpoch(resp.Responses[0].GetResponseRange().GetKvs())
		if err != nil {
			return port.FloorRaised{}, err
		}
		raised, done, err := s.raise(ctx, req, e, resp.Header.GetRevision())
		if done || err != nil {
			return raised, err
		}
	}
	return port.FloorRaised{}, errCrowded()
}

// raise lifts the base of epoch e, seen at the revision. The Txn's own revision is higher, so
// base + revision is above what was asked for, and above all that this Store has seen.
func (s *Store) raise(
	ctx context.Context, req port.FloorRequest, e epoch, rev int64,
) (raised port.FloorRaised, done bool, err error) {
	above := max(req.Above, s.watermark.highest())
	base := max(e.base, int64(above)-rev)
	id, at := auditID(rev), time.Now()
	record := auditRecord{Operator: req.Operator, Reason: req.Reason, At: at.UnixNano(), Base: base}
	resp, err := s.commit(ctx, writes, transaction{
		when: []clientv3.Cmp{s.unchanged(e), s.newestOfAll(id)},
		then: []clientv3.Op{
			clientv3.OpPut(s.keys.meta(), encode(metaRecord{Base: base})),
			clientv3.OpDelete(s.keys.folder(grantFolder), clientv3.WithPrefix(), clientv3.WithPrevKV()),
			clientv3.OpDelete(s.keys.folder(capFolder), clientv3.WithPrefix(), clientv3.WithPrevKV()),
			clientv3.OpPut(s.keys.audit("", id), encode(record)),
		},
	})
	if err != nil || !resp.Succeeded {
		return port.FloorRaised{}, false, err
	}
	raisedTo := epoch{base: base, rev: resp.Header.GetRevision()}
	s.learn(raisedTo)
	s.watermark.raised(raisedTo)
	limits := resp.Responses[2].GetResponseDeleteRange().GetPrevKvs()
	live := make(map[string]bool, len(limits))
	for _, kv := range limits {
		_, name := s.keys.split(kv.GetKey())
		live[name] = true
		s.sweeper.discard(kv.GetLease())
	}
	for _, kv := range resp.Responses[1].GetResponseDeleteRange().GetPrevKvs() {
		if _, name := s.keys.split(kv.GetKey()); strings.HasPrefix(string(kv.GetValue()), string(kindBound)) || live[name] {
			raised.EndedGrants++
		}
	}
	raised.Floor, raised.At = raisedTo.token(raisedTo.rev), at
	return raised, true, nil
}
