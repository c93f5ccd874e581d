package etcd

import (
	"context"
	"slices"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/fencelock/fencelock/core/lock"
	"github.com/fencelock/fencelock/core/port"
)

// maxRounds bounds how often one call looks again because the key changed
// between its look and its step. Each round lost means that another call won.
const maxRounds = 16

// errCrowded ends a call that lost every round.
func errCrowded() error {
	return lock.Contention("the key changes faster than the store can be asked", false, nil)
}

// outcome is what a conditional step came to: done, or a view of what stood in its way.
type outcome struct {
	done bool
	rev  int64
	// freed is the lease that the step took off the key; 0 if there was none.
	freed int64
	view  *view
}

// change is a step that is carried out only while a certain grant is live.
type change struct {
	key   lock.Key
	epoch epoch
	// rev and lease identify the grant: of its key, and of its session.
	rev, lease int64
	// asks is whose session the view tells of where the step is refused.
	asks lock.SessionID
	also []clientv3.Cmp
	ops  []clientv3.Op
}

// change carries out c in one Txn. A grant is live in one of two ways, and a
// Txn has no "or", so the second stands in the else branch of the first.
func (s *Store) change(ctx context.Context, c change) (outcome, error) {
	stands := append([]clientv3.Cmp{
		s.unchanged(c.epoch),
		clientv3.Compare(clientv3.ModRevision(s.keys.grant(c.key)), "=", c.rev),
		clientv3.Compare(clientv3.LeaseValue(s.keys.grant(c.key)), "=", c.lease),
	}, c.also...)
	bound := clientv3.Compare(clientv3.Value(s.keys.grant(c.key)), ">", boundAbove)
	capped := clientv3.Compare(clientv3.CreateRevision(s.keys.limit(c.key)), ">", 0)
	resp, err := s.commit(ctx, writes, transaction{
		when: append(slices.Clip(stands), bound),
		then: c.ops,
		otherwise: []clientv3.Op{clientv3.OpTxn(
			append(slices.Clip(stands), capped), c.ops, s.viewOps(c.key, c.asks))},
	})
	if err != nil {
		return outcome{}, err
	}
	answers, done := resp.Responses, resp.Succeeded
	if !done {
		inner := answers[0].GetResponseTxn()
		answers, done = inner.GetResponses(), inner.GetSucceeded()
	}
	return s.outcome(c.key, resp.Header.GetRevision(), answers, done)
}

func (s *Store) outcome(key lock.Key, rev int64, answers []*pb.ResponseOp, done bool) (outcome, error) {
	if !done {
		v, err := s.decodeView(key, rev, answers)
		return outcome{view: v}, err
	}
	return outcome{done: true, rev: rev, freed: freed(s.keys.limit(key), answers)}, nil
}

// freed finds the lease that the key had before a step overwrote or deleted it.
func freed(key string, answers []*pb.ResponseOp) int64 {
	for _, answer := range answers {
		if kv := answer.GetResponsePut().GetPrevKv(); kv != nil && string(kv.GetKey()) == key {
			return kv.GetLease()
		}
		for _, kv := range answer.GetResponseDeleteRange().GetPrevKvs() {
			if string(kv.GetKey()) == key {
				return kv.GetLease()
			}
		}
	}
	return 0
}

// dropOps end a grant.
func (s *Store) dropOps(key lock.Key) []clientv3.Op {
	return []clientv3.Op{
		clientv3.OpDelete(s.keys.grant(key)),
		clientv3.OpDelete(s.keys.limit(key), clientv3.WithPrevKV()),
	}
}

// proposal is a grant about to be made.
type proposal struct {
	req    port.GrantRequest
	member *member
	// at is the grant's AcquiredAt.
	at time.Time
	// lease is the grant's own lease; nil where it has none.
	lease *ownLease
}

// putOps make a grant, and see to it that no lease of an earlier one remains.
func (s *Store) putOps(p proposal, base int64) []clientv3.Op {
	key := p.req.Key
	r := grantRecord{
		Session: p.req.Session.Reveal(), Owner: string(p.member.owner), Request: string(p.req.RequestID),
		AcquiredAt: p.at.UnixNano(), Lease: wholeSeconds(p.req.Lease), TTL: wholeSeconds(p.member.ttl),
		Base: base, Metadata: p.req.Metadata,
	}
	put := clientv3.OpPut(s.keys.grant(key), r.encode(), clientv3.WithLease(clientv3.LeaseID(p.member.lease)))
	if p.lease == nil {
		return []clientv3.Op{put, clientv3.OpDelete(s.keys.limit(key), clientv3.WithPrevKV())}
	}
	c := capRecord{Session: r.Session, Base: base, Lease: r.Lease}
	return []clientv3.Op{put, clientv3.OpPut(s.keys.limit(key), encode(c),
		clientv3.WithLease(clientv3.LeaseID(p.lease.id)), clientv3.WithPrevKV())}
}

// made is the grant that a done proposal has become.
func (s *Store) made(p proposal, token lock.Token) lock.Grant {
	g := lock.Grant{
		Key: p.req.Key, Session: p.req.Session, Owner: p.member.owner, Token: token,
		RequestID: p.req.RequestID, AcquiredAt: p.at, Lease: p.req.Lease, Metadata: p.req.Metadata,
	}
	if p.lease != nil {
		g.LeaseRemaining = p.lease.remaining(s.now())
	}
	return g
}

// change is a step upon the live grant of a view.
func (v *view) change(asks lock.SessionID, ops []clientv3.Op) change {
	return change{key: v.key, epoch: v.epoch, rev: v.grant.rev, lease: v.grant.lease, asks: asks, ops: ops}
}
