package parity

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fencelock/fencelock/contracts/parity/history"
	"github.com/fencelock/fencelock/core/lock"
	"github.com/fencelock/fencelock/core/port"
)

const (
	// searchTime bounds the search for an order of one key's history.
	searchTime = 30 * time.Second
	// faultTime bounds a call of a recorded client where there are faults, so that one costs it little, and calmTime where there are none.
	faultTime, calmTime = 250 * time.Millisecond, patience
	// maxDoubts is how many calls of unknown outcome a key gets before another takes its place. Each may take effect at any
	// later time, so too many leave a history that nobody can judge.
	maxDoubts = 6
)

// heldIsHeld: while a grant stands nobody else gets the key, however it is asked for.
func heldIsHeld(s *stage) {
	holder, other := s.open(s.First, longTTL), s.open(s.Second, longTTL)
	for _, lease := range []time.Duration{0, time.Minute} {
		req := s.request(s.key("held/"+lease.String()), holder)
		req.Lease = lease
		g := s.grab(s.First, req)
		for _, b := range []port.Backend{s.First, s.Second} {
			for _, wanted := range []time.Duration{0, time.Minute} {
				rival := s.request(g.Key, other)
				rival.Lease = wanted
				s.blocked(b, rival)
				s.blocked(b, rival)
				s.holds(s.Second, g)
			}
		}
		s.holdsNothing(s.First, other)
	}
}

// oneOfManyAtOnce: of many sessions that want a free key at once one gets it.
func oneOfManyAtOnce(s *stage) {
	var sessions []lock.Session
	for i := range 8 {
		sessions = append(sessions, s.open([]port.Backend{s.First, s.Second}[i%2], longTTL))
	}
	for _, name := range []string{"a", "b", "c", "d", "e", "f"} {
		key := s.key("wanted/" + name)
		if n := granted(s.atOnce(8, func(i int) port.GrantRequest { return s.request(key, sessions[i]) })); n != 1 {
			s.Errorf("8 sessions at once got %d grants of one key, want 1", n)
		}
	}
}

// mutualExclusion lets clients of both servers take one lock in turn and look whether they are
// alone inside.
func mutualExclusion(s *stage) {
	const clients, turns = 6, 8
	key := s.key("inside")
	var inside, intruders, disowned atomic.Int32
	errs := make([]error, clients)
	var group sync.WaitGroup
	for i := range clients {
		b, session := []port.Backend{s.First, s.Second}[i%2], s.open(s.First, longTTL)
		group.Go(func() {
			for turn := 0; turn < turns && errs[i] == nil && s.Context().Err() == nil; {
				a, err := insert(s.Context(), b, s.request(key, session))
				if errs[i] = err; err != nil || !a.Granted {
					continue
				}
				if inside.Add(1) != 1 {
					intruders.Add(1)
				}
				if _, err := s.extend(b, a.Grant, 0); err != nil {
					disowned.Add(1)
				}
				inside.Add(-1)
				_, errs[i] = ask(s.Context(), true, func(ctx context.Context) (bool, error) {
					return b.Locks.DeleteIfOwner(ctx, key, session.ID, a.Grant.Token)
				})
				turn++
			}
		})
	}
	group.Wait()
	for _, err := range errs {
		if err != nil {
			s.Fatalf("take turns: %v", err)
		}
	}
	if intruders.Load() > 0 || disowned.Load() > 0 {
		s.Errorf("%d times two were inside at once, %d times a holder had lost its grant", intruders.Load(), disowned.Load())
	}
}

// tokensUnderConcurrency takes one lock as fast as it goes and looks at the order of tokens.
func tokensUnderConcurrency(s *stage) {
	load := s.newLoad(1, calmTime)
	load.run(6, 200, func(int) {})
	load.judge(10)
}

func quietHistory(s *stage) {
	load := s.newLoad(3, calmTime)
	load.run(8, 320, func(step int) {
		if step%60 == 59 {
			load.kill()
		}
	})
	load.judge(20)
}

func faultyHistory(s *stage) {
	load := s.newLoad(3, faultTime)
	none := func(T) func() { return func() {} }
	heal := none(s)
	load.run(8, 360, func(step int) {
		if step%40 == 0 {
			heal()
			heal = []func(T) func(){none, s.Partition, s.Pause}[step/40%3](s)
		}
	})
	heal()
	load.run(8, 120, func(int) {})
	load.judge(20)
}

// load is a recorded workload over both servers.
type load struct {
	s        *stage
	recorder *history.Recorder
	// callTime bounds a call.
	callTime time.Duration

	mu       sync.Mutex
	sessions []lock.SessionID // alive as far as their clients know
	keys     []lock.Key
	doubts   map[lock.Key]int
	retired  int
}

func (s *stage) newLoad(keys int, callTime time.Duration) *load {
	l := &load{s: s, callTime: callTime, recorder: history.NewRecorder(), doubts: map[lock.Key]int{}}
	for i := range keys {
		l.keys = append(l.keys, s.key("history/"+string(rune('a'+i))))
	}
	return l
}

// run lets clients take so many steps in all; before each one, direct is called
// in the case's own goroutine.
func (l *load) run(clients, steps int, direct func(step int)) {
	l.s.Helper()
	ctx, cancel := context.WithTimeout(l.s.Context(), 3*patience)
	defer cancel()
	permits := make(chan struct{})
	var group sync.WaitGroup
	for i := range clients {
		c := &client{
			load: l, backend: l.recorder.Wrap([]port.Backend{l.s.First, l.s.Second}[i%2]), healthy: l.recorder.Wrap(l.s.Second),
			random: rand.New(rand.NewPCG(uint64(i), uint64(steps))), //nolint:gosec // a workload, not a secret
		}
		group.Go(func() {
			for range permits {
				c.step(ctx)
				// Give way, or one client takes all the steps of a fast store.
				pause(ctx, time.Duration(c.random.IntN(400))*time.Microsecond)
			}
			c.leave(ctx)
		})
	}
	defer group.Wait()
	defer close(permits)
	for step := range steps {
		direct(step)
		select {
		case permits <- struct{}{}:
		case <-ctx.Done():
			l.s.Errorf("%d of %d steps took %v", step, steps, 3*patience)
			return
		}
	}
}

// pick draws one of the keys.
func (l *load) pick(random *rand.Rand) lock.Key {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.keys[random.IntN(len(l.keys))]
}

// note counts a call about the key whose outcome is unknown.
func (l *load) note(key lock.Key, err error) {
	if !lock.IsAmbiguous(err) {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.doubts[key]++
	if i := slices.Index(l.keys, key); i >= 0 && l.doubts[key] >= maxDoubts {
		l.retired++
		l.keys[i] = l.s.key(fmt.Sprintf("history/next/%d", l.retired))
	}
}

// kill ends some session behind its client's back.
func (l *load) kill() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.sessions) == 0 {
		return
	}
	id := l.sessions[0]
	l.sessions = l.sessions[1:]
	l.recorder.Kill(id, func() { l.s.KillSession(l.s, id) })
}

// judge checks what was recorded. A history of fewer grants says too little, and goes on until
// it says enough.
func (l *load) judge(grants int) {
	l.s.Helper()
	for range 5 {
		report, err := history.Check(l.recorder.Operations(), searchTime)
		l.s.Logf("%d operations, %d unknown, %d grants on %d keys", report.Operations, report.Unknown, report.Grants, report.Keys)
		switch {
		case err != nil:
			l.s.Fatalf("the history is not one of a fenced lock: %v", err)
		case len(report.Undecided) > 0:
			l.s.Fatalf("no order found, and none refuted, within %v for %v", searchTime, report.Undecided)
		case report.Grants >= grants:
			return
		}
		l.run(6, 100, func(int) {})
	}
	l.s.Errorf("the history has fewer than %d grants and says too little", grants)
}

// client is one recorded client. What it knows may be wrong; that is the point.
type client struct {
	load    *load
	backend port.Backend
	// healthy is a server that no fault is done to.
	healthy port.Backend
	random  *rand.Rand
	session lock.SessionID
	grants  []lock.Grant
}

// step does one thing, chosen at random.
func (c *client) step(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, c.load.callTime)
	defer cancel()
	if c.session.IsZero() {
		c.open(ctx)
		return
	}
	var err error
	switch n := c.random.IntN(100); {
	case n < 5:
		_, err = c.backend.Sessions.Heartbeat(ctx, c.session)
	case n < 10:
		_, err = c.backend.Sessions.LocksOf(ctx, c.session)
	case n < 25 || len(c.grants) == 0:
		err = c.acquire(ctx)
	default:
		err = c.use(ctx, n)
	}
	switch {
	case lock.CodeOf(err) == lock.CodeSessionDead:
		c.session, c.grants = lock.SessionID{}, nil
	case lock.IsAmbiguous(err) && c.random.IntN(4) > 0:
		// What may still happen can happen at most until the session's end. Too many calls that may
		// take effect at any time leave a history that nobody can judge.
		c.leave(ctx)
	}
}

func (c *client) open(ctx context.Context) {
	session, err := c.backend.Sessions.OpenSession(ctx, port.OpenRequest{Owner: "worker", TTL: longTTL})
	if err != nil {
		return
	}
	c.session = session.ID
	c.load.mu.Lock()
	defer c.load.mu.Unlock()
	c.load.sessions = append(c.load.sessions, session.ID)
}

// acquire sends one request up to three times, and withdraws it if no answer came.
func (c *client) acquire(ctx context.Context) error {
	req := port.GrantRequest{Key: c.load.pick(c.random), Session: c.session, RequestID: freshID()}
	if c.random.IntN(4) == 0 {
		req.Lease = time.Minute
	}
	for range 3 {
		a, err := c.backend.Locks.TryInsert(ctx, req)
		c.load.note(req.Key, err)
		if err == nil && a.Granted {
			c.grants = append(c.grants, a.Grant)
		}
		if !lock.IsRetryable(err) {
			return err
		}
	}
	_, err := c.backend.Handover.Abandon(ctx, req.Key, req.Session, req.RequestID)
	c.load.note(req.Key, err)
	return err
}

// use does something with the oldest grant, which may be over.
func (c *client) use(ctx context.Context, n int) (err error) {
	g := c.grants[0]
	defer func() { c.load.note(g.Key, err) }()
	switch {
	case n < 35:
		_, err = c.backend.Locks.Extend(ctx, g.Key, g.Session, g.Token, 0)
		return err
	case n < 40:
		_, err = c.backend.Locks.DeleteIfOwner(ctx, g.Key, g.Session, g.Token+1)
		return err
	case n < 46:
		_, err = c.backend.Locks.Revoke(ctx, port.RevokeRequest{Key: g.Key, Operator: "operator", Reason: "parity suite"})
		return err
	case n < 58:
		to := port.GrantRequest{Key: g.Key, Session: c.session, RequestID: freshID()}
		taken, err := c.backend.Handover.Handoff(ctx, port.GrantRef{Key: g.Key, Session: g.Session, Token: g.Token}, to)
		c.grants = c.grants[1:]
		if err == nil {
			c.grants = append(c.grants, taken)
		}
		return err
	default:
		_, err = c.backend.Locks.DeleteIfOwner(ctx, g.Key, g.Session, g.Token)
		c.grants = c.grants[1:]
		return err
	}
}

// leave closes the session, so that nothing stays locked for those that come after.
func (c *client) leave(ctx context.Context) {
	if c.session.IsZero() {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), c.load.callTime)
	defer cancel()
	if _, err := c.healthy.Sessions.CloseSession(ctx, c.session); err == nil {
		c.session, c.grants = lock.SessionID{}, nil
	}
}
