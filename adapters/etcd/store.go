package etcd

import (
	"context"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/fencelock/fencelock/core/lock"
	"github.com/fencelock/fencelock/core/port"
)

// DefaultPrefix is the prefix of all keys where none is configured.
const DefaultPrefix = "fencelock/"

// Clients are the parts of an etcd client that a [Store] uses. They may be in-process
// clients of an embedded etcd: nothing here needs a connection. Who made
// them closes them, after the Store. All fields are required.
type Clients struct {
	KV      clientv3.KV
	Watcher clientv3.Watcher
	// Lease is the raw client: the shared keepalive stream needs to send when a heartbeat
	// comes, which no higher client offers.
	Lease       pb.LeaseClient
	Maintenance clientv3.Maintenance
	// Endpoints are what Maintenance is asked about, one by one, for the
	// servers' versions; one arbitrary name will do for an in-process client.
	Endpoints []string
}

// Config says how a [Store] works. The zero value of each optional field means its default.
type Config struct {
	// Prefix is the prefix of all keys, default [DefaultPrefix]. Stores with the same prefix
	// share everything; no prefix may be the beginning of another.
	Prefix string
	// Clock is required; it must also run while the machine is suspended.
	Clock port.Clock
	// WatermarkFile, if set, is where the Store keeps the highest token it has seen, so
	// that after a restart it notices a store that went back in time. Each server needs its own.
	WatermarkFile string
	// AllowUnsafeVersions turns the version gate off. See the package documentation.
	AllowUnsafeVersions bool
	// Report, if set, is told of incidents, for logs and metrics. It must not block.
	Report func(Incident)

	tuning tuning
}

// Incident is something an operator may want to know of.
type Incident struct {
	Kind IncidentKind
	// Err is the cause, if there is one.
	Err error
}

// IncidentKind names an incident.
type IncidentKind string

// The incidents.
const (
	// WatchRestarted: waiters were woken to look for themselves, since the
	// notification stream could not be resumed without a gap.
	WatchRestarted IncidentKind = "watch_restarted"
	// FeedRestarted: the feed told everyone to look for themselves.
	FeedRestarted IncidentKind = "feed_restarted"
	// KeepaliveReplaced: the shared keepalive stream failed or fell silent.
	KeepaliveReplaced IncidentKind = "keepalive_replaced"
	// StoreUnsafe: the store seems to have gone back in time; grants are stopped.
	StoreUnsafe IncidentKind = "store_unsafe"
	// WatermarkFailed: the watermark file could not be written.
	WatermarkFailed IncidentKind = "watermark_failed"
	// CleanupDropped: a lease nobody uses any more was left to run out.
	CleanupDropped IncidentKind = "cleanup_dropped"
)

// Store keeps sessions, grants and revocations in etcd. It implements every
// port; [Store.Backend] bundles them. All methods are safe for concurrent use.
type Store struct {
	clients Clients
	keys    keyspace
	clock   port.Clock
	report  func(Incident)

	epoch     atomic.Pointer[epoch]
	members   *roster
	heart     *heart
	waiters   *hub
	feed      *feed
	watermark *watermark
	sweeper   *sweeper
	gate      *gate
	acting    chan struct{} // has room for the one act of an operator that may go on

	// life bounds everything the Store does on its own; work counts it.
	life    context.Context //nolint:containedctx // It is the life of the Store, not of a call.
	end     context.CancelFunc
	work    sync.WaitGroup
	closing sync.Mutex
	closed  bool
	// close ends what Dial opened.
	close func() error
}

// New returns a Store over the clients. It asks the store for its versions, its base and its
// revision; ctx bounds that. It returns a retryable [lock.ErrContention] or
// [lock.ErrNotLeader] where the store cannot be asked, and [lock.ErrUnsafeStore] where a server's
// version is not safe to grant from. A store that went back in time is no error here: the Store then
// serves everything but grants until [Store.RaiseFloor].
func New(ctx context.Context, clients Clients, cfg Config) (*Store, error) {
	if err := check(clients, cfg); err != nil {
		return nil, err
	}
	s := &Store{
		clients: clients, clock: cfg.Clock, report: cfg.Report,
		keys: keyspace(normalize(cfg.Prefix)),
		gate: newGate(clients, cfg.AllowUnsafeVersions), acting: make(chan struct{}, 1),
	}
	if s.report == nil {
		s.report = func(Incident) {}
	}
	s.epoch.Store(&epoch{})
	s.life, s.end = context.WithCancel(context.WithoutCancel(ctx))
	s.members = newRoster(s)
	s.heart = newHeart(s, cfg.tuning.orDefault())
	s.waiters = newHub(s)
	s.feed = newFeed(s)
	s.sweeper = newSweeper(s)
	s.watermark = newWatermark(s, cfg.WatermarkFile)
	if err := s.start(ctx); err != nil {
		s.end()
		return nil, err
	}
	return s, nil
}

func check(clients Clients, cfg Config) error {
	switch {
	case clients.KV == nil || clients.Watcher == nil || clients.Lease == nil || clients.Maintenance == nil:
		return errors.New("open etcd store: a client is missing")
	case len(clients.Endpoints) == 0:
		return errors.New("open etcd store: no endpoint to check the version of")
	case cfg.Clock == nil:
		return errors.New("open etcd store: a clock is missing")
	}
	return nil
}

func normalize(prefix string) string {
	if prefix == "" {
		return DefaultPrefix
	}
	return strings.TrimSuffix(prefix, "/") + "/"
}

func (s *Store) start(ctx context.Context) error {
	if err := s.gate.check(ctx); err != nil {
		return err
	}
	if err := s.watermark.open(ctx); err != nil {
		return err
	}
	s.work.Go(s.watermark.keep)
	s.sweeper.start()
	return nil
}

// Backend returns the Store as all ports.
func (s *Store) Backend() port.Backend {
	return port.Backend{
		Locks: s, Sessions: s, Waiter: s, Handover: s, Catalog: s, Feed: s, Custodian: s,
	}
}

// BackendID implements port.LockStore.
func (s *Store) BackendID() string { return "etcd" }

// Close ends everything the Store does on its own and waits for it. Sessions and grants stay as they are;
// subscriptions end; calls in flight fail. It may be called more than once.
func (s *Store) Close() error {
	s.closing.Lock()
	again := s.closed
	s.closed = true
	s.closing.Unlock()
	if again {
		return nil
	}
	s.end()
	s.feed.End()
	s.work.Wait()
	err := s.watermark.save()
	if s.close != nil {
		err = errors.Join(err, s.close())
	}
	return err
}

// errClosed is the cause where a call comes after Close.
var errClosed = errors.New("the store is closed")

// spawn starts work that Close waits for; false after Close.
func (s *Store) spawn(work func()) bool {
	s.closing.Lock()
	defer s.closing.Unlock()
	if s.closed {
		return false
	}
	s.work.Go(work)
	return true
}

// call returns the context of one call to the store: it ends with ctx or with the Store, and
// asks a server without a leader to say so at once.
func (s *Store) call(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(clientv3.WithRequireLeader(ctx))
	stop := context.AfterFunc(s.life, cancel)
	return ctx, func() { stop(); cancel() }
}

// transaction is one etcd Txn.
type transaction struct {
	when            []clientv3.Cmp
	then, otherwise []clientv3.Op
}

// commit carries a transaction out, by a linearizable step whose revision counts for the watermark.
func (s *Store) commit(ctx context.Context, did access, t transaction) (*clientv3.TxnResponse, error) {
	if err := ctx.Err(); err != nil {
		return nil, lock.Contention("the call ended before it was sent", false, err)
	}
	ctx, cancel := s.call(ctx)
	defer cancel()
	before := s.watermark.seen()
	resp, err := s.clients.KV.Txn(ctx).If(t.when...).Then(t.then...).Else(t.otherwise...).Commit()
	if err != nil {
		return nil, translate(err, did)
	}
	s.watermark.answered(before, resp.Header.GetRevision())
	return resp, nil
}

// fetch reads, all at one revision, by a linearizable step.
func (s *Store) fetch(ctx context.Context, ops ...clientv3.Op) (*clientv3.TxnResponse, error) {
	return s.commit(ctx, reads, transaction{then: ops})
}

// now is the clock's reading.
func (s *Store) now() time.Duration { return s.clock.Elapsed() }
