package client_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fencelock/fencelock/adapters/client"
	"github.com/fencelock/fencelock/core/lock"
)

// bench is one client, its network and its world.
type bench struct {
	*world
	t      *testing.T
	net    *network
	nodes  []*node
	client *client.Client
}

// newBench starts servers and a client of them, inside a bubble.
func newBench(t *testing.T, nodes int, opts ...client.Option) *bench {
	t.Helper()
	b := &bench{world: newWorld(), t: t, net: &network{}}
	var endpoints []string
	for i := range nodes {
		name := string(rune('a' + i))
		b.nodes = append(b.nodes, b.net.addNode(t, name, b.world, true))
		endpoints = append(endpoints, "http://"+name+":80")
	}
	b.connect(endpoints, opts...)
	return b
}

func (b *bench) connect(endpoints []string, opts ...client.Option) {
	b.t.Helper()
	opts = append([]client.Option{client.WithDialContext(b.net.dial), client.WithClock(b.clock)}, opts...)
	c, err := client.New(endpoints, opts...)
	if err != nil {
		b.t.Fatal(err)
	}
	b.client = c
	b.t.Cleanup(func() { _ = c.Close() })
}

func (b *bench) open(opts ...client.SessionOption) *client.Session {
	b.t.Helper()
	s, err := b.client.OpenSession(b.t.Context(), "tester", opts...)
	if err != nil {
		b.t.Fatal(err)
	}
	return s
}

func (b *bench) acquire(s *client.Session, key string, opts ...client.AcquireOption) *client.Lock {
	b.t.Helper()
	l, err := s.TryAcquire(b.t.Context(), key, opts...)
	if err != nil {
		b.t.Fatal(err)
	}
	return l
}

// linked waits until the stream is in use.
func (b *bench) linked() {
	b.t.Helper()
	for range 1000 {
		if synctest.Wait(); b.client.Linked() {
			return
		}
		rest(10 * time.Millisecond)
	}
	b.t.Fatal("the stream never opened")
}

// rest lets the bubble's time pass.
func rest(d time.Duration) {
	if d > 0 {
		<-time.After(d)
	}
}

// elapse lets time pass and everything that follows from it happen.
func elapse(d time.Duration) {
	rest(d)
	synctest.Wait()
}

func wantCode(t *testing.T, err error, code lock.Code) {
	t.Helper()
	if lock.CodeOf(err) != code {
		t.Errorf("error = %v (code %q), want code %q", err, lock.CodeOf(err), code)
	}
}

func TestKeepaliveBeatsEachThirdOfTheUsableTime(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, 1)
		s := b.open()
		b.linked()
		elapse(5 * time.Minute)
		if s.State() != client.Safe {
			t.Errorf("state = %v, want safe", s.State())
		}
		third := 15 * time.Second * 7 / 10 / 3
		beats := b.seen("heartbeat")
		for i := 2; i < len(beats); i++ { // the first follows the opening of the stream
			if gap := beats[i].at - beats[i-1].at; gap > third || gap < third*8/10 {
				t.Errorf("heartbeat %d came %v after the one before, want a third (%v) less some jitter", i, gap, third)
			}
		}
	})
}

func TestKeepaliveHasOneHeartbeatInFlight(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, 1)
		var flying, most tally
		b.suffer(func(c call) fault {
			if c.name == "heartbeat" {
				most.see(flying.add(1))
				time.AfterFunc(2*time.Second, func() { flying.add(-1) })
				return fault{answerTakes: 2 * time.Second}
			}
			return fault{}
		})
		s := b.open()
		for range 100 {
			s.Poke()
			elapse(100 * time.Millisecond)
		}
		if most.get() != 1 {
			t.Errorf("%d heartbeats were in flight at once, want 1", most.get())
		}
	})
}

func TestDeadSessionIsLostAtTheNextHeartbeat(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, 1)
		s := b.open()
		l := b.acquire(s, "k")
		told := make(chan error, 2)
		s.OnLost(func(err error) { told <- err })
		elapse(time.Second)
		b.end(s.ID())
		elapse(4 * time.Second)
		wantCode(t, s.Err(), lock.CodeSessionDead)
		wantCode(t, l.CheckStillHeld(), lock.CodeLost)
		if cause := context.Cause(l.Context()); !errors.Is(cause, lock.ErrLost) || !errors.Is(cause, lock.ErrSessionDead) {
			t.Errorf("cause of the lock's context = %v, want lost because the session is dead", cause)
		}
		wantCode(t, <-told, lock.CodeSessionDead)
		beats := len(b.seen("heartbeat"))
		elapse(time.Minute)
		if now := len(b.seen("heartbeat")); now != beats {
			t.Errorf("%d more heartbeats after the session was dead", now-beats)
		}
		s.OnLost(func(err error) { told <- err })
		wantCode(t, <-told, lock.CodeSessionDead)
		if len(told) != 0 {
			t.Error("a callback ran twice")
		}
	})
}

func TestFailingHeartbeatsArePutInJeopardyAndRecover(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, 1)
		s := b.open()
		l := b.acquire(s, "k")
		var broken flag
		b.suffer(func(c call) fault {
			if broken.get() && c.name == "heartbeat" {
				return fault{err: lock.ErrNotLeader}
			}
			return fault{}
		})
		elapse(time.Second)
		broken.set(true)
		elapse(4 * time.Second)
		if s.State() != client.Jeopardy {
			t.Errorf("state = %v, want jeopardy", s.State())
		}
		if err := l.CheckStillHeld(); err != nil {
			t.Errorf("a blip was taken for a loss: %v", err)
		}
		broken.set(false)
		elapse(4 * time.Second)
		if s.State() != client.Safe {
			t.Errorf("state = %v, want safe", s.State())
		}
	})
}

func TestCloseFreesTheLocksAndTellsNobodyOfALoss(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, 1)
		s := b.open()
		s.OnLost(func(error) { t.Error("OnLost ran although the session was closed") })
		l := b.acquire(s, "k")
		if released, err := s.Close(t.Context()); released != 1 || err != nil {
			t.Errorf("Close = %d, %v, want 1, nil", released, err)
		}
		if b.holds("k", l.Token()) {
			t.Error("the store still holds the lock")
		}
		wantCode(t, l.CheckStillHeld(), lock.CodeLost)
		<-s.Done()
		if released, err := s.Close(t.Context()); released != 0 || err != nil {
			t.Errorf("second Close = %d, %v, want 0, nil", released, err)
		}
		_, err := s.TryAcquire(t.Context(), "k")
		wantCode(t, err, lock.CodeSessionDead)
		elapse(time.Minute)
	})
}

func TestClosedClientHasNoSessionsAndOpensNone(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, 1)
		s := b.open()
		l := b.acquire(s, "k")
		b.linked()
		if err := b.client.Close(); err != nil {
			t.Fatal(err)
		}
		if s.Err() == nil || l.CheckStillHeld() == nil {
			t.Error("a session outlived its client")
		}
		_, err := b.client.OpenSession(t.Context(), "tester")
		wantCode(t, err, lock.CodeInvalid)
		if !b.holds("k", l.Token()) {
			t.Error("closing the client freed a lock whose work may go on")
		}
	})
}
