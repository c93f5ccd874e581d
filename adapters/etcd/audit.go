package etcd

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/fencelock/fencelock/core/lock"
)

// auditID names an act of an operator: the revision that it looked at. Its Txn compares that no newer
// one has been recorded, so the ids of a listing are in the order of the acts themselves.
type auditID int64

// auditDigits is the length of an id's text.
const auditDigits = 16

func (id auditID) String() string { return fmt.Sprintf("%0*x", auditDigits, int64(id)) }

func parseAuditID(text string) (auditID, bool) {
	n, err := strconv.ParseInt(text, 16, 64)
	return auditID(n), err == nil && isHex(text, auditDigits)
}

func isAuditID(text string) bool {
	_, ok := parseAuditID(text)
	return ok
}

// newest holds while the namespace has no record that is as new as the id.
func (s *Store) newest(namespace string, id auditID) clientv3.Cmp {
	from, end := s.keys.audits(namespace), s.keys.audit(namespace, id)+"\x00"
	return clientv3.Compare(clientv3.CreateRevision(from), "=", 0).WithRange(end)
}

// newestOfAll holds while no act has been recorded since the id's revision, in any namespace.
func (s *Store) newestOfAll(id auditID) clientv3.Cmp {
	return clientv3.Compare(clientv3.ModRevision(s.keys.folder(auditFolder)), "<", int64(id)+1).WithPrefix()
}

// turn waits until no other act of an operator goes on here, so that they do not stand in each other's way.
func (s *Store) turn(ctx context.Context) (release func(), err error) {
	select {
	case s.acting <- struct{}{}:
		return func() { <-s.acting }, nil
	case <-ctx.Done():
		return nil, translate(ctx.Err(), reads)
	}
}

// revocation is what a record at the revision says. One of a raised floor has no key and no previous holder.
func (r auditRecord) revocation(id auditID, rev int64) (lock.Revocation, error) {
	revocation := lock.Revocation{
		ID: id.String(), Operator: r.Operator, Reason: r.Reason, At: time.Unix(0, r.At),
		PreviousOwner: lock.Owner(r.Owner), PreviousToken: lock.Token(r.Token), Floor: lock.Token(r.Base + rev),
	}
	if r.Key == "" {
		return revocation, nil
	}
	var err error
	if revocation.Key, err = lock.NewKey(r.Namespace, r.Key); err != nil {
		return lock.Revocation{}, fmt.Errorf("read audit record: %w", err)
	}
	if revocation.PreviousSession, err = lock.ParseSessionID(r.Session); err != nil {
		return lock.Revocation{}, fmt.Errorf("read audit record: %w", err)
	}
	return revocation, nil
}

func (s *Store) decodeAudit(kv *mvccpb.KeyValue) (lock.Revocation, error) {
	id, ok := s.keys.auditID(kv.GetKey())
	if !ok {
		return lock.Revocation{}, foreign(kv, errAuditKey)
	}
	r, err := decode[auditRecord](kv)
	if err != nil {
		return lock.Revocation{}, err
	}
	revocation, err := r.revocation(id, kv.GetModRevision())
	if err != nil {
		return lock.Revocation{}, foreign(kv, err)
	}
	return revocation, nil
}
