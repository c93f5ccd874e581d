package service_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fencelock/fencelock/core/lock"
	"github.com/fencelock/fencelock/core/port"
	"github.com/fencelock/fencelock/core/service"
)

const (
	seeds  = 150
	actors = 12
	turns  = 12
	keys   = 2
	// storeLimit is the time limit of a store call in this test.
	storeLimit = 400 * time.Millisecond
)

// Many clients of two servers acquire, wait, leave, retry, release and abandon, while the
// store refuses calls, loses requests and answers, and is slow, and sessions die. The seed fixes
// what each of them draws, not the schedule.
//
// Checked: what a call answers is true of the store at that moment; a definite refusal leaves no
// grant behind; no two clients hold a key at once; all waits end in time; when all
// have withdrawn what they are unsure of, the store holds nothing and the servers remember nothing.
func TestRandomHistoriesUnderFaults(t *testing.T) {
	t.Parallel()
	for seed := range uint64(seeds) {
		t.Run("seed "+strconv.FormatUint(seed, 10), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) { newModel(t, seed).run() })
		})
	}
}

type model struct {
	*testing.T
	store   *store
	servers [2]*world
	// owners says which client believes that it holds a key.
	mu     sync.Mutex
	owners map[lock.Key]lock.RequestID
}

func newModel(t *testing.T, seed uint64) *model {
	t.Helper()
	m := &model{T: t, store: newStore(), owners: map[lock.Key]lock.RequestID{}}
	for i := range m.servers {
		w := &world{T: t, store: m.store, clock: &fakeClock{start: time.Now()}, seen: &recorder{}}
		cfg := service.Config{HandoffLimit: 3, StoreTimeout: storeLimit, FallbackPoll: time.Second, MaxWaitersPerKey: 4}
		w.service = service.New(m.store.backend(), cfg, w.clock, w.seen)
		w.service.Start()
		m.servers[i] = w
	}
	random := rand.New(rand.NewPCG(seed, 0))
	trouble := random.IntN(40)
	m.store.faults(func(string, lock.Key) fault {
		f := fault{delay: time.Duration(random.Int64N(int64(5 * time.Millisecond)))}
		if random.IntN(100) >= trouble {
			return f
		}
		switch random.IntN(5) {
		case 0:
			return refused
		case 1:
			return requestLost
		case 2:
			f.err = errUnknown
		case 3:
			f.delay *= 200 // up to a second: beyond the limit
		case 4:
			f.delay *= 20
		}
		return f
	})
	return m
}

func (m *model) run() {
	var all sync.WaitGroup
	var clients []*actor
	for n := range actors {
		a := &actor{model: m, random: rand.New(rand.NewPCG(uint64(n), 1)), name: "a" + strconv.Itoa(n)}
		clients = append(clients, a)
		all.Go(a.live)
	}
	all.Wait()
	m.store.faults(nil)
	for _, a := range clients {
		a.tidy()
	}
	for _, w := range m.servers {
		w.service.Close()
		w.clean()
	}
	m.store.mu.Lock()
	defer m.store.mu.Unlock()
	for _, g := range m.store.grants {
		if _, live := m.store.current(g.Key); live {
			m.Errorf("orphan: %s of request %s", g.Key, g.RequestID)
		}
	}
	held, newest := map[lock.Key]bool{}, map[lock.Key]lock.Token{}
	for _, c := range m.store.history {
		if c.began && (held[c.key] || c.token <= newest[c.key]) {
			m.Errorf("grant %+v while held, or with a token not above %d", c, newest[c.key])
		}
		held[c.key], newest[c.key] = c.began, max(newest[c.key], c.token)
	}
}

// actor is one client.
type actor struct {
	*model
	random  *rand.Rand
	name    string
	session lock.SessionID
	asked   int
}

func (a *actor) server() *service.Service { return a.servers[a.random.IntN(len(a.servers))].service }

func (a *actor) drawn(limit time.Duration) time.Duration {
	return time.Duration(a.random.Int64N(int64(limit)))
}

func (a *actor) live() {
	for range turns {
		if a.session.IsZero() || a.random.IntN(10) == 0 {
			a.renew()
		}
		a.tidy()
		a.turn()
		<-time.After(a.drawn(50 * time.Millisecond))
	}
}

// renew lets the session die, if there is one, and opens another.
func (a *actor) renew() {
	a.store.mu.Lock()
	a.store.kill(a.session)
	a.store.mu.Unlock()
	for {
		s, err := a.server().OpenSession(a.Context(), port.OpenRequest{Owner: lock.Owner(a.name), TTL: lock.MaxTTL})
		if err == nil {
			a.session = s.ID
			return
		}
	}
}

// tidy releases what a heartbeat's comparison finds: grants that were made after the
// client had given up, by a handoff of another server that was under way.
func (a *actor) tidy() {
	a.until(func(s *service.Service) error {
		beat, err := s.Heartbeat(a.Context(), service.HeartbeatRequest{Session: a.session, Check: true})
		for _, g := range beat.Held {
			_, released := s.Release(a.Context(), g.Key, g.Session, g.Token)
			err = errors.Join(err, released)
		}
		return err
	})
}

// turn is one acquire with its retries, and the release.
func (a *actor) turn() {
	a.asked++
	req := service.AcquireRequest{
		GrantRequest: port.GrantRequest{
			Key:       key("k" + strconv.Itoa(a.random.IntN(keys))),
			Session:   a.session,
			RequestID: lock.RequestID(fmt.Sprintf("%s-%d", a.name, a.asked)),
		},
		Wait: a.drawn(3*time.Second) * time.Duration(a.random.IntN(2)),
	}
	unsure := false
	for range 1 + a.random.IntN(4) {
		result, err := a.acquire(req)
		if err == nil && result.Granted {
			a.hold(req, result.Grant)
			return
		}
		unsure = unsure || lock.IsAmbiguous(err)
		if err != nil && !lock.IsRetryable(err) && !errors.Is(err, lock.ErrSessionDead) {
			a.Errorf("acquire: %v", err)
		}
		if !unsure {
			a.leftNothing(req)
		}
		if err == nil {
			break
		}
	}
	a.until(func(s *service.Service) error {
		_, err := s.Abandon(a.Context(), req.Key, req.Session, req.RequestID)
		return err
	})
	a.leftNothing(req)
}

// acquire makes one call, from which the caller sometimes leaves.
func (a *actor) acquire(req service.AcquireRequest) (service.AcquireResult, error) {
	ctx, cancel := context.WithCancel(a.Context())
	defer cancel()
	if a.random.IntN(5) == 0 {
		ctx, cancel = context.WithTimeout(ctx, a.drawn(time.Second))
		defer cancel()
	}
	began := time.Now()
	result, err := a.server().Acquire(ctx, req)
	// A try may be in flight when the wait ends, or a handoff; then the store is asked once more, or twice.
	if took := time.Since(began); took > req.Wait+4*storeLimit {
		a.Errorf("a wait of %v took %v", req.Wait, took)
	}
	return result, err
}

// leftNothing checks that the request has no live grant.
func (a *actor) leftNothing(req service.AcquireRequest) {
	a.store.mu.Lock()
	defer a.store.mu.Unlock()
	if g, live := a.store.current(req.Key); live && g.RequestID == req.RequestID {
		a.Errorf("a definite answer left the grant %d of request %s behind", g.Token, g.RequestID)
	}
}

func (a *actor) hold(req service.AcquireRequest, g lock.Grant) {
	a.store.mu.Lock()
	live, held := a.store.current(req.Key)
	a.store.mu.Unlock()
	if g.Session != a.session || g.RequestID != req.RequestID || !held || live.Token != g.Token {
		a.Errorf("granted %+v to request %s; the store has %+v", g, req.RequestID, live)
	}
	a.mu.Lock()
	if other, taken := a.owners[req.Key]; taken {
		a.Errorf("%s and %s hold the key at once", other, req.RequestID)
	}
	a.owners[req.Key] = req.RequestID
	a.mu.Unlock()
	<-time.After(a.drawn(30 * time.Millisecond))
	a.mu.Lock()
	delete(a.owners, req.Key)
	a.mu.Unlock()
	a.until(func(s *service.Service) error {
		_, err := s.Release(a.Context(), g.Key, g.Session, g.Token)
		return err
	})
	a.store.mu.Lock()
	defer a.store.mu.Unlock()
	if now, held := a.store.current(g.Key); held && now.Token == g.Token {
		a.Errorf("the grant %d is still there after its release", g.Token)
	}
}

// until repeats a call, on any server, until it has an answer.
func (a *actor) until(call func(*service.Service) error) {
	for {
		err := call(a.server())
		if err == nil {
			return
		}
		if !lock.IsRetryable(err) {
			a.Errorf("%v", err)
			return
		}
	}
}
