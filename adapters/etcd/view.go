package etcd

import (
	"context"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/fencelock/fencelock/core/lock"
)

// epoch is the meta key as last seen: the base of all tokens, and the
// revision that says whether it is still that.
type epoch struct {
	base int64
	rev  int64
}

// token of a key that was written at the revision.
func (e epoch) token(rev int64) lock.Token { return lock.Token(e.base + rev) }

// unchanged holds while no floor was raised.
func (s *Store) unchanged(e epoch) clientv3.Cmp {
	return clientv3.Compare(clientv3.ModRevision(s.keys.meta()), "=", e.rev)
}

// learn remembers the epoch; a stale one costs a retry, never a decision,
// since every Txn compares it.
func (s *Store) learn(e epoch) {
	if *s.epoch.Load() != e {
		s.epoch.Store(&e)
	}
}

func decodeEpoch(kvs []*mvccpb.KeyValue) (epoch, error) {
	if len(kvs) == 0 {
		return epoch{}, nil
	}
	r, err := decode[metaRecord](kvs[0])
	return epoch{base: r.Base, rev: kvs[0].GetModRevision()}, err
}

// limit is the lease of a grant as it stands in the store.
type limit struct {
	lease int64
	rev   int64
	// length is what the lease was made for.
	length time.Duration
}

// view is what one linearizable step saw of a key, and of the session that asks.
type view struct {
	key   lock.Key
	rev   int64
	epoch epoch
	// grant is nil where the key has none.
	grant *standing
	// limit is nil where the grant has no lease, or where it has lapsed. While
	// a grant stands it belongs to that grant, since each put of a grant puts
	// or deletes it.
	limit *limit
	// session is the lease of the session that asks; 0 if that is dead.
	session int64
}

// live reports whether a grant stands and has not lapsed.
func (v *view) live() bool {
	return v.stands() && v.grant.base == v.epoch.base
}

// stands is live among views of one epoch.
func (v *view) stands() bool { return v.grant != nil && (!v.grant.capped() || v.limit != nil) }

// is reports whether the live grant is this one.
func (v *view) is(session lock.SessionID, token lock.Token) bool {
	return v.live() && v.grant.grant.Session.Equal(session) && v.grant.grant.Token == token
}

// named reports whether the live grant was made for this request.
func (v *view) named(session lock.SessionID, id lock.RequestID) bool {
	return v.live() && v.grant.grant.Session.Equal(session) && v.grant.grant.RequestID == id
}

// viewOps reads a view; session may be the zero id. No read is keys-only: etcd answers
// that from its index, without the lease.
func (s *Store) viewOps(key lock.Key, session lock.SessionID) []clientv3.Op {
	return []clientv3.Op{
		clientv3.OpGet(s.keys.meta()),
		clientv3.OpGet(s.keys.grant(key)),
		clientv3.OpGet(s.keys.limit(key)),
		clientv3.OpGet(s.keys.session(session)),
	}
}

// decodeView reads the answers to [Store.viewOps].
func (s *Store) decodeView(key lock.Key, rev int64, answers []*pb.ResponseOp) (*view, error) {
	kvs := func(i int) []*mvccpb.KeyValue { return answers[i].GetResponseRange().GetKvs() }
	v := &view{key: key, rev: rev}
	var err error
	if v.epoch, err = decodeEpoch(kvs(0)); err != nil {
		return nil, err
	}
	s.learn(v.epoch)
	if err := v.fill(kvs(1), kvs(2)); err != nil {
		return nil, err
	}
	if found := kvs(3); len(found) > 0 {
		v.session = found[0].GetLease()
	}
	return v, nil
}

// look reads a view.
func (s *Store) look(ctx context.Context, key lock.Key, session lock.SessionID) (*view, error) {
	resp, err := s.fetch(ctx, s.viewOps(key, session)...)
	if err != nil {
		return nil, err
	}
	return s.decodeView(key, resp.Header.GetRevision(), resp.Responses)
}
