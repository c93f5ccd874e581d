package etcd

import (
	"context"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
)

// ownLease is an etcd lease made for one grant or one session.
type ownLease struct {
	id  int64
	ttl time.Duration
	// until is the reading of the clock until which the store guarantees it.
	until time.Duration
}

func (l *ownLease) remaining(now time.Duration) time.Duration { return max(0, l.until-now) }

// newLease makes an etcd lease. Its guarantee counts from before the call was sent.
func (s *Store) newLease(ctx context.Context, ttl time.Duration) (*ownLease, error) {
	ctx, cancel := s.call(ctx)
	defer cancel()
	sent := s.now()
	resp, err := s.clients.Lease.LeaseGrant(ctx, &pb.LeaseGrantRequest{TTL: wholeSeconds(ttl)})
	if err != nil {
		// A lease whose answer was lost runs out by itself; nothing hangs on it.
		return nil, translate(err, reads)
	}
	granted := seconds(resp.GetTTL())
	return &ownLease{id: resp.GetID(), ttl: granted, until: sent + granted}, nil
}

// endLease ends a lease with all its keys; it reports false if there was none.
func (s *Store) endLease(ctx context.Context, id int64) (rev int64, ended bool, err error) {
	ctx, cancel := s.call(ctx)
	defer cancel()
	resp, err := s.clients.Lease.LeaseRevoke(ctx, &pb.LeaseRevokeRequest{ID: id})
	switch {
	case isLeaseNotFound(err):
		return 0, false, nil
	case err != nil:
		return 0, false, translate(err, writes)
	}
	return resp.GetHeader().GetRevision(), true, nil
}

// pulseOf is what the store says of a lease without renewing it.
type pulseOf struct {
	// exists is false for a lease that was revoked or has run out and is gone.
	exists bool
	// seconds it has left, rounded down; negative for one that ran out and is not gone yet.
	seconds int64
	// until is the reading of the clock until which it is guaranteed.
	until time.Duration
	// keys attached to it, if asked for.
	keys [][]byte
	// term of the store's leader as the answering server knows it.
	term uint64
}

// askLease asks for a lease's remaining time. The answer is the leader's, as the asked server
// knows the leader: [pulseOf].term lets the caller confirm it.
func (s *Store) askLease(ctx context.Context, id int64, keys bool) (pulseOf, error) {
	ctx, cancel := s.call(ctx)
	defer cancel()
	sent := s.now()
	resp, err := s.clients.Lease.LeaseTimeToLive(ctx, &pb.LeaseTimeToLiveRequest{ID: id, Keys: keys})
	switch {
	case isLeaseNotFound(err):
		return pulseOf{}, nil
	case err != nil:
		return pulseOf{}, translate(err, reads)
	}
	return pulseOf{
		exists: resp.GetGrantedTTL() > 0, seconds: resp.GetTTL(), until: sent + seconds(resp.GetTTL()),
		keys: resp.GetKeys(), term: resp.GetHeader().GetRaftTerm(),
	}, nil
}
