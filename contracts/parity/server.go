package parity

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fencelock/fencelock/core/clock"
	"github.com/fencelock/fencelock/core/lock"
	"github.com/fencelock/fencelock/core/port"
	"github.com/fencelock/fencelock/core/service"
)

// never is the fallback poll of servers whose waiters must be woken.
const never = 24 * time.Hour

// deaf is an observer that does not listen.
type deaf struct{}

// Observe implements port.Observer.
func (deaf) Observe(context.Context, port.Event) {}

// serve starts a lock server over one client of the store. Nothing but a wake
// reaches its waiters: the fallback poll is out of reach.
func (s *stage) serve(b port.Backend) *service.Service {
	return s.serveWith(b, service.Config{FallbackPoll: never})
}

func (s *stage) serveWith(b port.Backend, cfg service.Config) *service.Service {
	server := service.New(b, cfg, clock.Boot{}, deaf{})
	server.Start()
	s.Cleanup(server.Close)
	return server
}

// tap lets a case see, and act in, the moment after each attempt of a server:
// the store has answered and the server does not know yet.
type tap struct {
	port.LockStore
	attempts atomic.Int64
	after    func(n int64, a port.Attempt)
}

// TryInsert implements port.LockStore.
func (t *tap) TryInsert(ctx context.Context, req port.GrantRequest) (port.Attempt, error) {
	a, err := t.LockStore.TryInsert(ctx, req)
	if err == nil {
		t.after(t.attempts.Add(1), a)
	}
	return a, err
}

// tapped returns the backend with a tap on its attempts.
func tapped(b port.Backend, after func(n int64, a port.Attempt)) port.Backend {
	b.Locks = &tap{LockStore: b.Locks, after: after}
	return b
}

// registrar counts the registrations that a server has not ended.
type registrar struct {
	port.ReleaseWaiter
	open atomic.Int64
}

// Register implements port.ReleaseWaiter.
func (r *registrar) Register(key lock.Key, observed lock.Token) port.Wake {
	r.open.Add(1)
	return &registered{Wake: r.ReleaseWaiter.Register(key, observed), end: sync.OnceFunc(func() { r.open.Add(-1) })}
}

type registered struct {
	port.Wake
	end func()
}

// Cancel implements port.Wake.
func (r *registered) Cancel() {
	r.Wake.Cancel()
	r.end()
}

// standing is an acquire in another goroutine.
type standing struct {
	s      *stage
	cancel context.CancelFunc
	done   chan struct{}
	result service.AcquireResult
	err    error
	at     time.Time // when it returned
}

// stand starts an acquire that waits.
func (s *stage) stand(server *service.Service, req port.GrantRequest, wait time.Duration) *standing {
	ctx, cancel := context.WithCancel(s.Context())
	w := &standing{s: s, cancel: cancel, done: make(chan struct{})}
	go func() { // ends with the acquire, at the latest with the case
		defer close(w.done)
		defer cancel()
		w.result, w.err = server.Acquire(ctx, service.AcquireRequest{GrantRequest: req, Wait: wait})
		w.at = time.Now()
	}()
	return w
}

// queue is stand for a key that is held: it returns once the call stands in line.
func (s *stage) queue(server *service.Service, req port.GrantRequest) *standing {
	s.Helper()
	before := server.Status().Waiters
	w := s.stand(server, req, time.Hour)
	s.eventually("the call stands in line", func() bool { return server.Status().Waiters == before+1 })
	return w
}

// end waits for the acquire to return.
func (w *standing) end(what string) (service.AcquireResult, error) {
	w.s.Helper()
	select {
	case <-w.done:
	case <-time.After(patience):
		w.s.Fatalf("not within %v: %s", patience, what)
	case <-w.s.Context().Done():
		w.s.Fatalf("the case was ended: %v", context.Cause(w.s.Context()))
	}
	return w.result, w.err
}

// granted waits for the acquire to be granted.
func (w *standing) granted(what string) lock.Grant {
	w.s.Helper()
	result, err := w.end(what)
	if err != nil || !result.Granted {
		w.s.Fatalf("%s: granted %v, %v, want a grant", what, result.Granted, err)
	}
	return result.Grant
}
