package postgres

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/fencelock/fencelock/core/lock"
	"github.com/fencelock/fencelock/core/port"
)

// Access says how to reach a database.
type Access struct {
	// URL is a PostgreSQL connection URL, with pgxpool's parameters such as pool_max_conns. Required.
	URL string
	// ListenURL is where to listen for notifications: a direct connection where URL leads through a pooler. Default URL, or
	// nowhere with Pooler.
	ListenURL string
	// Pooler says that URL leads through a transaction pooler, such as pgbouncer: no connection keeps any state then.
	Pooler bool
}

// Config says how a [Store] works. The zero value of each optional field means its default.
type Config struct {
	// Clock is required; it must also run while the machine is suspended.
	Clock port.Clock
	// WatermarkFile, if set, is where the Store keeps the highest token it has seen, so
	// that after a restart it notices a database that went back in time. Each server needs its own.
	WatermarkFile string
	// Report, if set, is told of incidents, for logs and metrics. It must not block.
	Report func(Incident)
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
	// ListenerRestarted: waiters were woken to look for themselves, since notifications may have been missed.
	ListenerRestarted IncidentKind = "listener_restarted"
	// NotListening: nothing is heard, so the Store polls. Err says why; nil where there is no direct connection to listen on.
	NotListening IncidentKind = "not_listening"
	// ClockStepped: the database's clock was set; nobody is taken for dead for one time to live.
	ClockStepped IncidentKind = "clock_stepped"
	// StoreUnsafe: the store seems to have gone back in time; grants are stopped.
	StoreUnsafe IncidentKind = "store_unsafe"
	// WatermarkFailed: the watermark file could not be written.
	WatermarkFailed IncidentKind = "watermark_failed"
	// Unreplicated: standbys follow the database, and none synchronously: a failover can lose grants.
	Unreplicated IncidentKind = "unreplicated"
	// TidyFailed: what is over could not be tidied away.
	TidyFailed IncidentKind = "tidy_failed"
)

// Store keeps sessions, grants and revocations in PostgreSQL. It implements every
// port; [Store.Backend] bundles them. All methods are safe for concurrent use.
type Store struct {
	pools     *pools
	clock     *dbClock
	gate      *gate
	beats     *beats
	waiters   *hub
	feed      *feed
	watermark *guard
	report    func(Incident)

	// life bounds everything the Store does on its own; work counts it.
	life    context.Context //nolint:containedctx // It is the life of the Store, not of a call.
	end     context.CancelFunc
	work    sync.WaitGroup
	closing sync.Once
	failure error
}

// Dial migrates the database to the newest schema, checks that it is safe to keep locks in, and returns a
// Store over it; ctx bounds that. It returns a retryable [lock.ErrContention] or [lock.ErrNotLeader] where the database cannot be
// asked, and [lock.ErrUnsafeStore] where its settings are not safe. A database that went back in time is
// no error here: the Store then serves everything but grants until [Store.RaiseFloor].
func Dial(ctx context.Context, access Access, cfg Config) (*Store, error) {
	if cfg.Clock == nil {
		return nil, errors.New("open postgres store: a clock is missing")
	}
	s := &Store{report: cfg.Report, clock: newDBClock(cfg.Clock)}
	if s.report == nil {
		s.report = func(Incident) {}
	}
	var err error
	if s.pools, err = openWork(ctx, access); err != nil {
		return nil, err
	}
	s.gate = newGate(s.pools.work.Config().MaxConns)
	s.life, s.end = context.WithCancel(context.WithoutCancel(ctx))
	s.beats = newBeats(s)
	s.waiters = newHub(s)
	s.feed = newFeed(s)
	if err := s.start(ctx, cfg); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

func (s *Store) start(ctx context.Context, cfg Config) error {
	if err := migrate(ctx, s.pools); err != nil {
		return err
	}
	if err := s.pools.openBeats(ctx); err != nil {
		return err
	}
	if err := s.check(ctx); err != nil {
		return err
	}
	var err error
	if s.watermark, err = newGuard(ctx, s, cfg.WatermarkFile); err != nil {
		return err
	}
	s.work.Go(s.watermark.keep)
	s.work.Go(s.listen)
	s.work.Go(s.tidy)
	return nil
}

// Backend returns the Store as all ports.
func (s *Store) Backend() port.Backend {
	return port.Backend{
		Locks: s, Sessions: s, Waiter: s, Handover: s, Catalog: s, Feed: s, Custodian: s,
	}
}

// BackendID implements port.LockStore.
func (s *Store) BackendID() string { return "postgres" }

// Close ends everything the Store does on its own and waits for it. Sessions and grants stay as they are;
// subscriptions end; calls in flight fail. It may be called more than once.
func (s *Store) Close() error {
	s.closing.Do(func() {
		s.end()
		s.feed.endAll()
		s.work.Wait()
		if s.watermark != nil {
			s.failure = s.watermark.save()
		}
		s.pools.close()
	})
	return s.failure
}

// call returns the context of one call: it ends with ctx, with the Store, and after [callTimeout] where ctx has no end.
func (s *Store) call(ctx context.Context) (context.Context, context.CancelFunc) {
	if _, bounded := ctx.Deadline(); !bounded {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, callTimeout)
		return s.bound(ctx, cancel)
	}
	ctx, cancel := context.WithCancel(ctx)
	return s.bound(ctx, cancel)
}

func (s *Store) bound(ctx context.Context, cancel context.CancelFunc) (context.Context, context.CancelFunc) {
	stop := context.AfterFunc(s.life, cancel)
	return ctx, func() { stop(); cancel() }
}

// sessionID parses the text of a uuid; it is the zero id if that is none.
func sessionID(text string) lock.SessionID {
	digits := make([]byte, 0, 32)
	for i := range len(text) {
		if text[i] != '-' {
			digits = append(digits, text[i])
		}
	}
	id, err := lock.ParseSessionID(string(digits))
	if err != nil {
		return lock.SessionID{}
	}
	return id
}

// milliseconds is a duration as lock_timeout reads it.
func milliseconds(d time.Duration) string { return d.Truncate(time.Millisecond).String() }
