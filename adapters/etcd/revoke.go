package etcd

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"strings"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/fencelock/fencelock/core/lock"
	"github.com/fencelock/fencelock/core/port"
)

// Revoke implements port.LockStore. The floor is the token that a grant made
// by the same Txn would have had.
func (s *Store) Revoke(ctx context.Context, req port.RevokeRequest) (lock.Revocation, error) {
	v, err := s.look(ctx, req.Key, lock.SessionID{})
	if err != nil {
		return lock.Revocation{}, err
	}
	for range maxRounds {
		if !v.live() || (req.Expected != 0 && req.Expected != v.grant.grant.Token) {
			return lock.Revocation{}, lock.ErrLost
		}
		id, record := auditID(v.rev), s.condemned(v, req)
		ops := append(s.dropOps(req.Key),
			clientv3.OpPut(s.keys.floor(req.Key), encode(floorRecord{Base: v.epoch.base})),
			clientv3.OpPut(s.keys.audit(id), encode(record)))
		c := v.change(lock.SessionID{}, ops)
		c.also = []clientv3.Cmp{clientv3.Compare(clientv3.CreateRevision(s.keys.audit(id)), "=", 0)}
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

// revocation is what a record at the revision says.
func (r auditRecord) revocation(id string, rev int64) (lock.Revocation, error) {
	key, err := lock.NewKey(r.Namespace, r.Key)
	if err != nil {
		return lock.Revocation{}, fmt.Errorf("read audit record: %w", err)
	}
	session, err := lock.ParseSessionID(r.Session)
	if err != nil {
		return lock.Revocation{}, fmt.Errorf("read audit record: %w", err)
	}
	return lock.Revocation{
		ID: id, Key: key, Operator: r.Operator, Reason: r.Reason, At: time.Unix(0, r.At),
		PreviousOwner: lock.Owner(r.Owner), PreviousSession: session,
		PreviousToken: lock.Token(r.Token), Floor: lock.Token(r.Base + rev),
	}, nil
}

// auditID names an act that looked at the store at the revision: an act that begins after another
// has ended sorts behind it, whatever the servers' clocks say.
func auditID(rev int64) string {
	var unique [4]byte
	_, _ = rand.Read(unique[:]) // never fails: crypto/rand ends the program instead
	return fmt.Sprintf("%016x-%s", rev, hex.EncodeToString(unique[:]))
}

func isAuditID(id string) bool {
	rev, unique, ok := strings.Cut(id, "-")
	return ok && isHex(rev, 16) && isHex(unique, 8)
}
