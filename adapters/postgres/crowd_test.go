package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fencelock/fencelock/adapters/postgres"
	"github.com/fencelock/fencelock/core/clock"
	"github.com/fencelock/fencelock/core/lock"
	"github.com/fencelock/fencelock/core/service"
)

const (
	// crowdTTL is the time to live of the sessions of a crowd, and crowdBeat how often each is renewed.
	crowdTTL  = 6 * time.Second
	crowdBeat = crowdTTL / 6
)

// crowd is a lock server whose Store has few connections, and clients whose sessions live only as long as their heartbeats pass.
type crowd struct {
	*place

	server *service.Service
	stop   chan struct{}
	work   sync.WaitGroup
	missed atomic.Int64
	// beats are how long heartbeats took, and probes how long it took to write something on a connection that nobody shares.
	beats, probes durations
}

func newCrowd(t *testing.T, connections int) *crowd {
	t.Helper()
	p := newNarrow(t, connections)
	c := &crowd{place: p, server: service.New(p.Backend(), service.Config{}, clock.Boot{}, deaf{}), stop: make(chan struct{})}
	c.server.Start()
	t.Cleanup(c.server.Close)
	t.Cleanup(func() { close(c.stop); c.work.Wait() })
	p.exec("CREATE TABLE probe (n int); INSERT INTO probe VALUES (0)")
	ctx := context.WithoutCancel(t.Context()) // it ends before the probes do
	c.every(crowdBeat/10, &c.probes, func() bool {
		_, err := p.raw.Exec(ctx, "UPDATE probe SET n = n + 1")
		return err == nil
	})
	return c
}

// every does something again and again, and measures it, until it returns false or the test ends.
func (c *crowd) every(pause time.Duration, took *durations, do func() bool) {
	c.work.Go(func() {
		tick := time.NewTicker(pause)
		defer tick.Stop()
		for {
			began := time.Now()
			if !do() {
				return
			}
			took.add(time.Since(began))
			select {
			case <-tick.C:
			case <-c.stop:
				return
			}
		}
	})
}

// join opens a session and keeps it alive.
func (c *crowd) join(t *testing.T) lock.Session {
	t.Helper()
	session := c.open(crowdTTL)
	ctx := context.WithoutCancel(t.Context()) // it ends before the heartbeats do
	c.every(crowdBeat, &c.beats, func() bool {
		_, err := c.server.Heartbeat(ctx, service.HeartbeatRequest{Session: session.ID})
		if lock.IsRetryable(err) {
			c.missed.Add(1)
			return true
		}
		if err != nil {
			t.Errorf("heartbeat: %v", err)
		}
		return err == nil
	})
	return session
}

// stand has a session of its own wait for the key.
func (c *crowd) stand(t *testing.T, k lock.Key, granted chan<- lock.Grant) {
	t.Helper()
	session := c.join(t)
	go func() { // ends with the test
		result, err := c.server.Acquire(t.Context(), service.AcquireRequest{GrantRequest: request(k, session.ID), Wait: time.Hour})
		switch {
		case errors.Is(err, context.Canceled):
			return
		case err != nil || !result.Granted:
			t.Errorf("acquire %s: %+v, %v", k, result, err)
		}
		granted <- result.Grant
	}()
}

// durations are of one kind of act.
type durations struct {
	mu   sync.Mutex
	took []time.Duration
}

func (d *durations) add(took time.Duration) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.took = append(d.took, took)
}

// most is how long all of them took at most but for one of twenty, and longest how long that one did.
func (d *durations) most() (most, longest time.Duration) {
	d.mu.Lock()
	defer d.mu.Unlock()
	slices.Sort(d.took)
	return d.took[len(d.took)*19/20], d.took[len(d.took)-1]
}

// TestFiftyWaitersOnFourConnections: who waits for a key has no connection meanwhile. The holder and all who wait keep their
// sessions alive, and a release is as quick as ever.
func TestFiftyWaitersOnFourConnections(t *testing.T) {
	t.Parallel()
	const waiters, others = 50, 10
	c := newCrowd(t, 4)
	holder := c.join(t)
	popular := c.grab("popular", holder)
	granted, elsewhere := make(chan lock.Grant, waiters), make(chan lock.Grant, others)
	var held []lock.Grant
	for range waiters {
		c.stand(t, popular.Key, granted)
	}
	for i := range others {
		g := c.grab(fmt.Sprintf("other/%d", i), holder)
		held = append(held, g)
		c.stand(t, g.Key, elsewhere)
	}
	eventually(t, "all wait", func() bool { return c.server.Status().Waiters == waiters+others })
	<-time.After(2*crowdTTL + crowdBeat)
	if locks, err := c.LocksOf(t.Context(), holder.ID); err != nil || len(locks) != 1+others {
		t.Fatalf("after two lives without a heartbeat the holder has %d locks, %v, want %d", len(locks), err, 1+others)
	}
	if len(granted)+len(elsewhere) > 0 {
		t.Fatal("a waiter was granted what is held")
	}

	next, releases := popular, durations{}
	for range waiters {
		began := time.Now()
		if ok, err := c.server.Release(t.Context(), next.Key, next.Session, next.Token); !ok || err != nil {
			t.Fatalf("release: %v, %v", ok, err)
		}
		releases.add(time.Since(began))
		last := next.Token
		if next = c.next(t, granted); next.Token <= last || len(granted) > 0 {
			t.Fatalf("token %d after %d, and %d more grants", next.Token, last, len(granted))
		}
	}
	for _, g := range held {
		c.release(g)
		if next := c.next(t, elsewhere); next.Key != g.Key || next.Token <= g.Token {
			t.Fatalf("%s was granted with token %d, want %s with one above %d", next.Key, next.Token, g.Key, g.Token)
		}
	}
	c.judge(t, "heartbeats", &c.beats, crowdBeat)
	c.judge(t, "releases", &releases, time.Second)
	t.Logf("%d heartbeats were missed", c.missed.Load())
}

// judge expects acts to take less than a limit; on a machine where nothing does, not much longer than a write for which nobody
// has to wait. One in twenty may be as late as a session can bear.
func (c *crowd) judge(t *testing.T, what string, acts *durations, limit time.Duration) {
	t.Helper()
	most, longest := acts.most()
	usual, _ := c.probes.most()
	t.Logf("%s took %v, the longest %v; a write took %v", what, most, longest, usual)
	if most >= max(limit, 3*usual) || longest >= crowdTTL {
		t.Errorf("%s took %v, the longest %v, want less than %v and %v", what, most, longest, max(limit, 3*usual), crowdTTL)
	}
}

// next waits for a grant.
func (c *crowd) next(t *testing.T, granted <-chan lock.Grant) lock.Grant {
	t.Helper()
	select {
	case g := <-granted:
		return g
	case <-time.After(patience):
		t.Fatal("nobody was granted what was released")
		panic("unreachable")
	}
}

// TestHeartbeatsHaveConnectionsOfTheirOwn: all connections for other calls are taken for long, as they would be if those who wait
// for a key waited in the database. The same heartbeat on those connections would not pass.
func TestHeartbeatsHaveConnectionsOfTheirOwn(t *testing.T) {
	t.Parallel()
	p := newNarrow(t, 4)
	naive := dial(t, postgres.Access{URL: p.url}, config())
	postgres.LetHeartbeatsQueue(naive)
	session := p.open(lock.MaxTTL)
	ctx, cancel := context.WithCancel(t.Context())
	var sleepers sync.WaitGroup
	defer sleepers.Wait()
	defer cancel()
	for _, store := range []*postgres.Store{p.Store, naive} {
		for range 4 {
			sleepers.Go(func() { _, _ = postgres.PoolsOf(store).Work().Exec(ctx, "SELECT pg_sleep(600)") })
		}
	}
	eventually(t, "all connections are taken", func() bool { return rows(t, p.raw, activity, "%pg_sleep(600)%") == 8 })

	for range 5 {
		if v, err := p.Heartbeat(t.Context(), session.ID); err != nil || v.Remaining <= 0 {
			t.Errorf("heartbeat: %+v, %v", v, err)
		}
	}
	late, stop := context.WithTimeout(t.Context(), 500*time.Millisecond)
	defer stop()
	_, err := p.TryInsert(late, request(key(t, "crowded"), session.ID))
	refused(t, "an acquire without a connection", err)
	late, stop = context.WithTimeout(t.Context(), 500*time.Millisecond)
	defer stop()
	if _, err = naive.Heartbeat(late, session.ID); err == nil {
		t.Error("heartbeats pass on connections that are taken: this test shows nothing")
	}
	refused(t, "a heartbeat on the connections of all", err)
}
