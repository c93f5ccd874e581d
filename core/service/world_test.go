package service_test

import (
	"context"
	"errors"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fencelock/fencelock/core/lock"
	"github.com/fencelock/fencelock/core/port"
	"github.com/fencelock/fencelock/core/service"
)

// bubble runs a test on virtual time. That no goroutine is left at its end is
// checked by synctest itself.
func bubble(t *testing.T, cfg service.Config, test func(w *world)) {
	t.Helper()
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, cfg)
		w.service.Start()
		synctest.Wait() // subscribed
		test(w)
		w.clean()
	})
}

// fakeClock is the bubble's time plus a jump.
type fakeClock struct {
	start time.Time
	mu    sync.Mutex
	jump  time.Duration
}

func (c *fakeClock) Elapsed() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	return time.Since(c.start) + time.Hour + c.jump
}

func (c *fakeClock) skip(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.jump += d
}

// recorder is an observer.
type recorder struct {
	mu     sync.Mutex
	events []port.Event
}

func (r *recorder) Observe(_ context.Context, ev port.Event) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.events = append(r.events, ev)
}

func (r *recorder) of(kind port.EventKind) (found []port.Event) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, ev := range r.events {
		if ev.Kind == kind {
			found = append(found, ev)
		}
	}
	return found
}

// world is a service over a fake store.
type world struct {
	*testing.T
	store   *store
	service *service.Service
	clock   *fakeClock
	seen    *recorder
	ids     int
}

func newWorld(t *testing.T, cfg service.Config) *world {
	t.Helper()
	w := &world{T: t, store: newStore(), clock: &fakeClock{start: time.Now()}, seen: &recorder{}}
	w.service = service.New(w.store.backend(), cfg, w.clock, w.seen)
	t.Cleanup(w.service.Close)
	return w
}

// clean checks that nothing is left: no queue, place, bell, registration.
func (w *world) clean() {
	w.Helper()
	synctest.Wait()
	queues, places, bells, watches, _ := w.service.Leftovers()
	if queues+places+bells+watches+w.service.Status().Waiters != 0 {
		w.Errorf("left behind: %d queues, %d places, %d bells, %d watches", queues, places, bells, watches)
	}
	w.store.mu.Lock()
	defer w.store.mu.Unlock()
	if n := len(w.store.wakes); n != 0 {
		w.Errorf("left behind: %d registrations", n)
	}
}

func key(name string) lock.Key {
	k, err := lock.NewKey("", name)
	if err != nil {
		panic(err)
	}
	return k
}

var theKey = key("k")

func (w *world) session() lock.SessionID {
	w.Helper()
	w.ids++
	s, err := w.service.OpenSession(w.Context(), port.OpenRequest{Owner: lock.Owner("o" + strconv.Itoa(w.ids)), TTL: lock.MaxTTL})
	if err != nil {
		w.Fatalf("open session: %v", err)
	}
	return s.ID
}

// kill ends a session in the store, as its expiry would.
func (w *world) kill(id lock.SessionID) {
	w.store.mu.Lock()
	defer w.store.mu.Unlock()
	w.store.kill(id)
}

func (w *world) request(session lock.SessionID, wait time.Duration) service.AcquireRequest {
	w.ids++
	return service.AcquireRequest{
		GrantRequest: port.GrantRequest{Key: theKey, Session: session, RequestID: lock.RequestID("r" + strconv.Itoa(w.ids))},
		Wait:         wait,
	}
}

// hold acquires the key for a new session.
func (w *world) hold() lock.Grant {
	w.Helper()
	return w.get(w.request(w.session(), 0))
}

func (w *world) get(req service.AcquireRequest) lock.Grant {
	w.Helper()
	result, err := w.service.Acquire(w.Context(), req)
	if err != nil || !result.Granted {
		w.Fatalf("acquire: %+v, %v; want a grant", result, err)
	}
	return result.Grant
}

func (w *world) release(g lock.Grant) {
	w.Helper()
	ok, err := w.service.Release(w.Context(), g.Key, g.Session, g.Token)
	if err != nil || !ok {
		w.Fatalf("release %d: %v, %v; want true", g.Token, ok, err)
	}
}

// pending is an acquire that runs in a goroutine.
type pending struct {
	w      *world
	req    service.AcquireRequest
	cancel context.CancelFunc
	done   chan struct{}
	service.AcquireResult
	err error
	// took is how long the call took.
	took time.Duration
}

// start begins an acquire and returns once it waits or has ended.
func (w *world) start(req service.AcquireRequest) *pending {
	p := w.launch(req)
	synctest.Wait()
	return p
}

func (w *world) launch(req service.AcquireRequest) *pending {
	ctx, cancel := context.WithCancel(w.Context())
	p := &pending{w: w, req: req, cancel: cancel, done: make(chan struct{})}
	began := time.Now()
	go func() {
		defer cancel()
		defer close(p.done)
		p.AcquireResult, p.err = w.service.Acquire(ctx, req)
		p.took = time.Since(began)
	}()
	return p
}

// wait starts an acquire of a new session that waits an hour.
func (w *world) wait() *pending { return w.start(w.request(w.session(), time.Hour)) }

func (p *pending) ended() bool {
	synctest.Wait()
	select {
	case <-p.done:
		return true
	default:
		return false
	}
}

// grant expects that the acquire has been granted by now.
func (p *pending) grant() lock.Grant {
	p.w.Helper()
	if !p.ended() {
		p.w.Fatal("the acquire still waits; want a grant by now")
	}
	if p.err != nil || !p.Granted {
		p.w.Fatalf("acquire: %+v, %v; want a grant", p.AcquireResult, p.err)
	}
	return p.Grant
}

// fails waits for the acquire to end and expects an error.
func (p *pending) fails(want error, ambiguous bool) {
	p.w.Helper()
	<-p.done
	if !errors.Is(p.err, want) || lock.IsAmbiguous(p.err) != ambiguous {
		p.w.Fatalf("acquire: %+v, %v (ambiguous %v); want %v (ambiguous %v)",
			p.AcquireResult, p.err, lock.IsAmbiguous(p.err), want, ambiguous)
	}
}

// held waits for the acquire to end and expects that it was not granted.
func (p *pending) held() lock.Holder {
	p.w.Helper()
	<-p.done
	if p.err != nil || p.Granted {
		p.w.Fatalf("acquire: %+v, %v; want held", p.AcquireResult, p.err)
	}
	return p.Holder
}

func (p *pending) waits() {
	p.w.Helper()
	if p.ended() {
		p.w.Fatalf("the acquire has ended: %+v, %v; want it to wait", p.AcquireResult, p.err)
	}
}

// pass lets virtual time pass.
func (w *world) pass(d time.Duration) {
	<-time.After(d)
	synctest.Wait()
}

// releasing is a release that runs in a goroutine.
type releasing struct {
	w      *world
	of     lock.SessionID
	cancel context.CancelFunc
	done   chan struct{}
	ok     bool
	err    error
}

func (w *world) releasing(g lock.Grant) *releasing {
	ctx, cancel := context.WithCancel(w.Context())
	r := &releasing{w: w, of: g.Session, cancel: cancel, done: make(chan struct{})}
	go func() {
		defer cancel()
		defer close(r.done)
		r.ok, r.err = w.service.Release(ctx, g.Key, g.Session, g.Token)
	}()
	synctest.Wait()
	return r
}

// returns waits for the release to end and expects its outcome.
func (r *releasing) returns(ok bool, want error) {
	r.w.Helper()
	<-r.done
	if r.ok != ok || !errors.Is(r.err, want) {
		r.w.Fatalf("release: %v, %v; want %v, %v", r.ok, r.err, ok, want)
	}
}
