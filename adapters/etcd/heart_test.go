package etcd_test

import (
	"context"
	"encoding/json"
	"io"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"

	"github.com/fencelock/fencelock/adapters/etcd"
	"github.com/fencelock/fencelock/core/lock"
	"github.com/fencelock/fencelock/core/port"
	"github.com/fencelock/fencelock/tools/testenv"
)

// handClock moves only by hand.
type handClock struct{ now atomic.Int64 }

func (c *handClock) Elapsed() time.Duration { return time.Duration(c.now.Load()) }

func (c *handClock) advance(d time.Duration) { c.now.Add(int64(d)) }

// leases is a lease client whose keepalive streams a test can meddle with.
type leases struct {
	pb.LeaseClient

	// stream, if set, wraps each new keepalive stream; n counts them from 1.
	stream func(n int, s pb.Lease_LeaseKeepAliveClient) pb.Lease_LeaseKeepAliveClient
	// ttl, if set, changes what the store says of a lease.
	ttl func(*pb.LeaseTimeToLiveResponse)

	opened atomic.Int64
	sent   atomic.Int64
}

func (l *leases) LeaseKeepAlive(ctx context.Context, opts ...grpc.CallOption) (pb.Lease_LeaseKeepAliveClient, error) {
	s, err := l.LeaseClient.LeaseKeepAlive(ctx, opts...)
	n := int(l.opened.Add(1))
	if err != nil {
		return nil, err
	}
	s = &counted{Lease_LeaseKeepAliveClient: s, sent: &l.sent}
	if l.stream != nil {
		s = l.stream(n, s)
	}
	return s, nil
}

func (l *leases) LeaseTimeToLive(
	ctx context.Context, req *pb.LeaseTimeToLiveRequest, opts ...grpc.CallOption,
) (*pb.LeaseTimeToLiveResponse, error) {
	resp, err := l.LeaseClient.LeaseTimeToLive(ctx, req, opts...)
	if err == nil && l.ttl != nil {
		l.ttl(resp)
	}
	return resp, err
}

// counted counts keepalives as they are sent.
type counted struct {
	pb.Lease_LeaseKeepAliveClient

	sent *atomic.Int64
}

func (c *counted) Send(req *pb.LeaseKeepAliveRequest) error {
	c.sent.Add(1)
	return c.Lease_LeaseKeepAliveClient.Send(req)
}

// silent is a stream that takes everything and answers nothing.
type silent struct {
	pb.Lease_LeaseKeepAliveClient
}

func (silent) Send(*pb.LeaseKeepAliveRequest) error { return nil }

func (s silent) Recv() (*pb.LeaseKeepAliveResponse, error) {
	<-s.Context().Done()
	return nil, io.EOF
}

// edited is a stream whose answers are changed on their way.
type edited struct {
	pb.Lease_LeaseKeepAliveClient

	edit func(*pb.LeaseKeepAliveResponse)
}

func (e edited) Recv() (*pb.LeaseKeepAliveResponse, error) {
	resp, err := e.Lease_LeaseKeepAliveClient.Recv()
	if err == nil {
		e.edit(resp)
	}
	return resp, err
}

// newMeddled is a place whose lease client is l.
func newMeddled(t *testing.T, l *leases, change func(*etcd.Config)) *place {
	t.Helper()
	server, prefix := testenv.Etcd(t), freshPrefix()
	client := raw(t, server.Endpoints)
	l.LeaseClient = clientv3.RetryLeaseClient(client)
	cfg := config(prefix)
	if change != nil {
		change(&cfg)
	}
	store, err := etcd.New(t.Context(), etcd.Clients{
		KV: client, Watcher: client, Lease: l, Maintenance: client, Endpoints: server.Endpoints,
	}, cfg)
	if err != nil {
		t.Fatalf("new store: %v", err)
	}
	t.Cleanup(func() { _ = store.Close() })
	return &place{Store: store, t: t, raw: client, prefix: prefix}
}

func TestSilentStreamIsReplaced(t *testing.T) {
	t.Parallel()
	l := &leases{stream: func(n int, s pb.Lease_LeaseKeepAliveClient) pb.Lease_LeaseKeepAliveClient {
		if n == 1 {
			return silent{s}
		}
		return s
	}}
	incidents := make(chan etcd.Incident, 16)
	p := newMeddled(t, l, func(cfg *etcd.Config) { cfg.Report = func(i etcd.Incident) { incidents <- i } })
	session := p.open(lock.MaxTTL)
	v, err := p.Heartbeat(t.Context(), session.ID)
	if err != nil {
		t.Fatalf("heartbeat over a silent stream: %v", err)
	}
	if n := l.opened.Load(); n < 2 || l.sent.Load() != 1 {
		t.Errorf("%d streams opened, %d keepalives sent, want a second stream that renewed", n, l.sent.Load())
	}
	if v.Remaining <= 0 || v.Remaining > lock.MaxTTL {
		t.Errorf("remaining is %v", v.Remaining)
	}
	if i := <-incidents; i.Kind != etcd.KeepaliveReplaced || i.Err == nil {
		t.Errorf("reported %+v", i)
	}
}

func TestGuaranteeCountsFromTheSend(t *testing.T) {
	t.Parallel()
	const onTheWay = 4 * time.Second
	c := &handClock{}
	l := &leases{stream: func(_ int, s pb.Lease_LeaseKeepAliveClient) pb.Lease_LeaseKeepAliveClient {
		return edited{s, func(*pb.LeaseKeepAliveResponse) { c.advance(onTheWay) }}
	}}
	p := newMeddled(t, l, func(cfg *etcd.Config) { cfg.Clock = c })
	session := p.open(time.Minute)
	c.advance(20 * time.Second)
	v, err := p.Heartbeat(t.Context(), session.ID)
	if err != nil {
		t.Fatalf("heartbeat: %v", err)
	}
	if want := time.Minute - onTheWay; v.Remaining != want || v.TTL != time.Minute {
		t.Errorf("remaining %v of %v, want %v", v.Remaining, v.TTL, want)
	}
}

func TestMissingLeaseAloneIsNotDeath(t *testing.T) {
	t.Parallel()
	l := &leases{stream: func(_ int, s pb.Lease_LeaseKeepAliveClient) pb.Lease_LeaseKeepAliveClient {
		return edited{s, func(resp *pb.LeaseKeepAliveResponse) { resp.TTL = 0 }}
	}}
	p := newMeddled(t, l, nil)
	session := p.open(lock.MaxTTL)
	_, err := p.Heartbeat(t.Context(), session.ID)
	expect(t, "heartbeat whose lease is missing while its record stands", err, lock.ErrContention)
	p.revoke(session)
	for range 2 {
		_, err = p.Heartbeat(t.Context(), session.ID)
		expect(t, "heartbeat whose lease and record are gone", err, lock.ErrSessionDead)
	}
}

func TestStaleHeartbeatIsNotSent(t *testing.T) {
	t.Parallel()
	c := &handClock{}
	l := &leases{}
	// The stream opens only after the heartbeat has become too old.
	l.stream = func(_ int, s pb.Lease_LeaseKeepAliveClient) pb.Lease_LeaseKeepAliveClient {
		c.advance(2 * time.Second)
		return s
	}
	p := newMeddled(t, l, func(cfg *etcd.Config) { cfg.Clock = c })
	session := p.open(lock.MinTTL + time.Second)
	_, err := p.Heartbeat(t.Context(), session.ID)
	expect(t, "a heartbeat that waited for 2 s", err, lock.ErrContention)
	if n := l.sent.Load(); n != 0 {
		t.Errorf("%d stale keepalives were sent", n)
	}
}

func TestHeartbeatsOfOneSessionShareAKeepalive(t *testing.T) {
	t.Parallel()
	held := make(chan struct{})
	l := &leases{stream: func(_ int, s pb.Lease_LeaseKeepAliveClient) pb.Lease_LeaseKeepAliveClient {
		<-held
		return s
	}}
	p := newMeddled(t, l, nil)
	session := p.open(lock.MaxTTL)
	const calls = 20
	var group sync.WaitGroup
	errs := make(chan error, calls)
	for range calls {
		group.Go(func() {
			_, err := p.Heartbeat(t.Context(), session.ID)
			errs <- err
		})
	}
	close(held)
	group.Wait()
	for range calls {
		if err := <-errs; err != nil {
			t.Errorf("heartbeat: %v", err)
		}
	}
	if n := l.opened.Load(); n != 1 {
		t.Errorf("%d streams for one Store", n)
	}
}

func TestAnyStoreRenewsAnySession(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	session := p.open(lock.DefaultTTL)
	other := dial(t, testenv.Etcd(t).Endpoints, config(p.prefix))
	v, err := other.Heartbeat(t.Context(), session.ID)
	if err != nil || v.TTL != session.TTL || v.Remaining <= 0 {
		t.Errorf("heartbeat of a session of another Store: %+v, %v", v, err)
	}
}

// TestDyingSessionsDelayNobody: thousands of sessions have run out and wait to be revoked, and some
// of them heartbeat too late. A renewal of such a lease blocks the stream that it is on.
//
//nolint:paralleltest // It asserts a time, so the other tests of the package must not load the machine meanwhile.
func TestDyingSessionsDelayNobody(t *testing.T) {
	t.Run("with side streams", func(t *testing.T) {
		t.Parallel()
		if slowest := dyingSessions(t, func(cfg etcd.Config) etcd.Config { return cfg }); slowest > time.Second {
			t.Errorf("a healthy heartbeat took %v, want at most 1s", slowest)
		}
	})
	t.Run("one stream for all is seen to fail", func(t *testing.T) {
		t.Parallel()
		if slowest := dyingSessions(t, etcd.OneStream); slowest <= time.Second {
			t.Errorf("the slowest healthy heartbeat took %v though it shared a blocked stream", slowest)
		}
	})
}

// dyingSessions returns how long the slowest healthy heartbeat took.
func dyingSessions(t *testing.T, change func(etcd.Config) etcd.Config) time.Duration {
	t.Helper()
	const dying, late, healthy, ttl = 6000, 8, 20, 15 * time.Second
	server, prefix := testenv.StartEtcd(t), freshPrefix()
	p := &place{
		Store: dial(t, server.Endpoints, change(config(prefix))), t: t,
		raw: raw(t, server.Endpoints), prefix: prefix,
	}
	doomed := openTogether(p, dying, ttl)
	var alive []lock.Session
	for range healthy {
		alive = append(alive, p.open(lock.MaxTTL))
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*patience)
	defer cancel()
	var lates sync.WaitGroup
	// The last are revoked last, after some seconds in which a renewal of them blocks.
	for _, s := range doomed[len(doomed)-late:] {
		lates.Go(func() { lateHeartbeats(ctx, p, s) })
	}
	over := make(chan struct{})
	go func() {
		lates.Wait()
		close(over)
	}()
	var slowest time.Duration
	for i := 0; ; i++ {
		start := time.Now()
		if _, err := p.Heartbeat(ctx, alive[i%healthy].ID); err != nil {
			t.Fatalf("heartbeat of a healthy session: %v", err)
		}
		slowest = max(slowest, time.Since(start))
		select {
		case <-over:
			t.Logf("the slowest healthy heartbeat took %v", slowest)
			return slowest
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// doom is a session that is left to die, and when it has run out.
type doom struct {
	session lock.SessionID
	end     time.Time
}

// openTogether opens sessions, keeps them alive until n live, renews them one last time in their order, and
// leaves them. On a busy machine some die of a late renewal meanwhile; others are opened in their place.
func openTogether(p *place, n int, ttl time.Duration) []doom {
	p.t.Helper()
	var doomed []doom
	for missing := n; missing > 0; missing = n - len(doomed) {
		opened := openMany(p, missing, ttl)
		for open := false; !open; {
			select {
			case <-opened:
				open = true
			case <-time.After(time.Second):
			}
			doomed = renewAll(p)
		}
		if p.t.Failed() {
			p.t.FailNow()
		}
	}
	return doomed
}

// openMany opens n sessions, many at a time; the channel is closed when it is done.
func openMany(p *place, n int, ttl time.Duration) <-chan struct{} {
	const writers = 64
	var group sync.WaitGroup
	var opened atomic.Int64
	for range writers {
		group.Go(func() {
			for opened.Add(1) <= int64(n) {
				if _, err := p.OpenSession(p.t.Context(), port.OpenRequest{Owner: "doomed", TTL: ttl}); err != nil {
					p.t.Errorf("open session: %v", err)
					return
				}
			}
		})
	}
	all := make(chan struct{})
	go func() {
		group.Wait()
		close(all)
	}()
	return all
}

// renewAll renews every session there is over one stream, behind the Store's back.
func renewAll(p *place) []doom {
	p.t.Helper()
	resp, err := p.raw.Get(p.t.Context(), p.prefix+"s/", clientv3.WithPrefix())
	if err != nil {
		p.t.Fatalf("list sessions: %v", err)
	}
	ctx, cancel := context.WithCancel(p.t.Context())
	defer cancel()
	stream, err := pb.NewLeaseClient(p.raw.ActiveConnection()).LeaseKeepAlive(ctx)
	if err != nil {
		p.t.Fatalf("open keepalive stream: %v", err)
	}
	var sender sync.WaitGroup
	defer sender.Wait()
	sender.Go(func() {
		for _, kv := range resp.Kvs {
			if stream.Send(&pb.LeaseKeepAliveRequest{ID: kv.GetLease()}) != nil {
				return
			}
		}
	})
	var doomed []doom
	for _, kv := range resp.Kvs {
		answer, err := stream.Recv()
		if err != nil {
			p.t.Fatalf("renew: %v", err)
		}
		var record struct {
			ID string `json:"i"`
		}
		if err := json.Unmarshal(kv.GetValue(), &record); err != nil {
			p.t.Fatalf("read session: %v", err)
		}
		id, err := lock.ParseSessionID(record.ID)
		if err == nil && answer.GetTTL() > 0 {
			doomed = append(doomed, doom{id, time.Now().Add(time.Duration(answer.GetTTL()) * time.Second)})
		}
	}
	return doomed
}

// lateHeartbeats waits until the session has just run out and heartbeats then, until it is dead.
func lateHeartbeats(ctx context.Context, p *place, d doom) {
	select {
	case <-ctx.Done():
	case <-time.After(time.Until(d.end.Add(100 * time.Millisecond))):
	}
	for ctx.Err() == nil {
		call, cancel := context.WithTimeout(ctx, 5*time.Second)
		_, err := p.Heartbeat(call, d.session)
		cancel()
		if lock.CodeOf(err) == lock.CodeSessionDead {
			return
		}
		<-time.After(10 * time.Millisecond)
	}
}

var _ port.Clock = (*handClock)(nil)
