package service

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fencelock/fencelock/core/lock"
	"github.com/fencelock/fencelock/core/port"
)

// Service is one lock server's use of one store. It is safe for concurrent use.
type Service struct {
	backend  port.Backend
	cfg      Config
	clock    port.Clock
	observer port.Observer

	lines  *lines
	hub    *hub
	bells  *bells
	thaw   thaw
	gauge  sync.Mutex // orders reports of the number of waiters
	flight flight

	// own is the work that no caller drives; start begins it, end ends it.
	own   sync.WaitGroup
	start func()
	end   context.CancelFunc
}

// New returns a service over the backend. It starts nothing: without
// [Service.Start] there is no news for watchers of sessions and no notice of a freeze.
func New(backend port.Backend, cfg Config, clock port.Clock, observer port.Observer) *Service {
	cfg = cfg.withDefaults()
	s := &Service{
		backend:  backend,
		cfg:      cfg,
		clock:    clock,
		observer: observer,
		lines:    newLines(cfg.MaxWaitersPerKey, cfg.MaxWaiters),
		hub:      newHub(),
		bells:    newBells(),
		flight:   newFlight(),
	}
	// Detached on purpose: owned work outlives every request and ends with Close.
	life, end := context.WithCancel(context.Background())
	s.end = end
	s.start = sync.OnceFunc(func() {
		s.thaw.stamp(s.clock.Elapsed())
		s.own.Go(func() { s.keepHouse(life) })
		s.own.Go(func() { s.followFeed(life) })
		for range resyncers {
			s.own.Go(func() { s.resync(life) })
		}
	})
	return s
}

// Start begins the work that no caller drives: reading the store's feed and
// noticing that this process was frozen. It does so once; [Service.Close] ends it.
func (s *Service) Start() { s.start() }

// Drain makes the server ready to stop. New waits are refused and waiting
// calls are answered with a retryable [lock.ErrContention]; watchers of sessions get
// [Draining]; then it waits until the calls that were in flight have ended. Sessions stay
// alive. An error means that ctx ended first.
func (s *Service) Drain(ctx context.Context) error {
	idle := s.flight.drain()
	s.hub.drain()
	select {
	case <-idle:
		return nil
	case <-ctx.Done():
		return lock.Contention("calls are still in flight", false, ctx.Err())
	}
}

// Close ends all waits and watches and all owned goroutines, and returns when these have
// ended. It closes neither sessions nor the backend. It may be called more than once.
func (s *Service) Close() {
	s.flight.drain()
	s.end()
	s.own.Wait()
	s.hub.close()
}

// Status tells the state of this server.
func (s *Service) Status() Status {
	return Status{Draining: s.flight.draining(), Waiters: s.lines.waiters()}
}

// BackendID names the kind of store, for the metric label only.
func (s *Service) BackendID() string { return s.backend.Locks.BackendID() }

// Ping returns nil if the store can grant now.
func (s *Service) Ping(ctx context.Context) error {
	_, err := ask(ctx, s, func(ctx context.Context) (struct{}, error) {
		return struct{}{}, s.backend.Custodian.Ping(ctx)
	})
	return err
}

// observe reports an event.
func (s *Service) observe(ctx context.Context, event port.Event) {
	s.observer.Observe(ctx, event)
}

// reportWaiters reports how many wait. The lock makes the last report the true one.
func (s *Service) reportWaiters(ctx context.Context) {
	s.gauge.Lock()
	defer s.gauge.Unlock()
	s.observe(ctx, port.Event{Kind: port.EventWaiting, Count: s.lines.waiters()})
}

// withDefaults fills in what is not set.
func (c Config) withDefaults() Config {
	orDefault(&c.HandoffLimit, 32)
	orDefault(&c.MaxWaitersPerKey, 1000)
	orDefault(&c.MaxWaiters, 10_000)
	orDefault(&c.MaxWait, time.Hour)
	orDefault(&c.FallbackPoll, 5*time.Second)
	orDefault(&c.StoreTimeout, 5*time.Second)
	orDefault(&c.HeartbeatStale, time.Second)
	orDefault(&c.SessionTTL, lock.DefaultTTL)
	return c
}

func orDefault[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}

// flight counts the calls in flight, so that a drain can wait for those that
// began before it.
type flight struct {
	mu    sync.Mutex
	calls int
	// stopping is closed when the drain begins, idle once the last earlier call has ended.
	stopping, idle chan struct{}
	began          atomic.Bool
}

func newFlight() flight {
	return flight{stopping: make(chan struct{}), idle: make(chan struct{})}
}

// enter notes the start of a call; the returned function its end.
func (f *flight) enter() (leave func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.began.Load() {
		return func() {}
	}
	f.calls++
	return f.leave
}

func (f *flight) leave() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.calls--
	if f.calls == 0 && f.began.Load() {
		close(f.idle)
	}
}

// drain begins the drain, once, and returns what is closed when it is complete.
func (f *flight) drain() (idle <-chan struct{}) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.began.CompareAndSwap(false, true) {
		close(f.stopping)
		if f.calls == 0 {
			close(f.idle)
		}
	}
	return f.idle
}

func (f *flight) draining() bool { return f.began.Load() }
