package etcd

import (
	"context"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/fencelock/fencelock/core/lock"
	"github.com/fencelock/fencelock/core/port"
)

// Revoke implements port.LockStore. The floor is the token that a grant made
// by the same Txn would have had.
func (s *Store) Revoke(ctx context.Context, req port.RevokeRequest) (lock.Revocation, error) {
	release, err := s.turn(ctx)
	if err != nil {
		return lock.Revocation{}, err
	}
	defer release()
	v, err := s.look(ctx, req.Key, lock.SessionID{})
	if err != nil {
		return lock.Revocation{}, err
	}
	for range maxRounds {
		if !v.live() || (req.Expected != 0 && req.Expected != v.grant.grant.Token) {
			return lock.Revocation{}, lock.ErrLost
		}
		id, record := auditID(v.rev), s.condemned(v, req)
		namespace := req.Key.Namespace()
		ops := append(s.dropOps(req.Key),
			clientv3.OpPut(s.keys.floor(req.Key), encode(floorRecord{Base: v.epoch.base})),
			clientv3.OpPut(s.keys.audit(namespace, id), encode(record)))
		c := v.change(lock.SessionID{}, ops)
		c.also = []clientv3.Cmp{s.newest(namespace, id), s.newest("", id)}
		out, err := s.change(ctx, c)
		switch {
		case err != nil:
			return lock.Revocation{}, err
		case out.done:
			s.sweeper.discard(out.freed)
			return record.revocation(id, out.rev)
		}
		v = out.view
	}
	return lock.Revocation{}, errCrowded()
}

func (s *Store) condemned(v *view, req port.RevokeRequest) auditRecord {
	g := v.grant.grant
	return auditRecord{
		Namespace: g.Key.Namespace(), Key: g.Key.Name(), Operator: req.Operator, Reason: req.Reason,
		At: time.Now().UnixNano(), Owner: string(g.Owner), Session: g.Session.Reveal(),
		Token: int64(g.Token), Base: v.epoch.base,
	}
}
