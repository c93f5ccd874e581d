package client_test

import (
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/fencelock/fencelock/adapters/client"
	"github.com/fencelock/fencelock/core/lock"
)

// verdict is what an observer sees who knows the client's belief and the
// store's truth at every instant.
type verdict struct {
	// overlap is how long the client believed that it held what the store had freed.
	overlap time.Duration
	// lostAt is when the belief ended; 0 if it did not.
	lostAt time.Duration
}

const step = 20 * time.Millisecond

// observe compares belief and truth for a while.
func (b *bench) observe(l *client.Lock, span time.Duration) (v verdict) {
	for end := b.clock.Elapsed() + span; b.clock.Elapsed() < end; rest(step) {
		believed := l.CheckStillHeld() == nil
		switch {
		case believed && !b.holds(l.Key().Name(), l.Token()):
			v.overlap += step
		case !believed && v.lostAt == 0:
			v.lostAt = b.clock.Elapsed()
		}
	}
	return v
}

// hardship is something that happens to a client which holds a lock.
type hardship struct {
	name string
	// from sets it up; it strikes at the moment strike.
	faults func(c call, struck bool) fault
	strike func(b *bench)
	// survives: the client must not lose the lock.
	survives bool
}

func beats(f fault) func(call, bool) fault {
	return func(c call, struck bool) fault {
		if struck && c.name == "heartbeat" {
			return f
		}
		return fault{}
	}
}

func hardships() []hardship {
	return []hardship{
		{name: "none", survives: true},
		{name: "every answer lost", faults: beats(fault{answerLost: true})},
		{name: "every request lost", faults: beats(fault{requestLost: true})},
		{name: "the store has no leader", faults: beats(fault{err: lock.ErrNotLeader})},
		{name: "the network swallows everything", strike: func(b *bench) { b.nodes[0].wires.shut() }},
		{name: "the server is gone", strike: func(b *bench) {
			b.nodes[0].down.shut()
			_ = b.nodes[0].server.Close()
		}},
		{name: "answers take a second", faults: beats(fault{answerTakes: time.Second}), survives: true},
		{name: "answers take three seconds, then no request arrives", faults: func(c call, _ bool) fault {
			switch {
			case c.name != "heartbeat":
				return fault{}
			case c.at > 15*time.Second:
				return fault{requestLost: true}
			}
			return fault{answerTakes: 3 * time.Second}
		}},
		{name: "answers take longer than the session", faults: beats(fault{answerTakes: 20 * time.Second})},
		{name: "requests take longer than the session", faults: beats(fault{requestTakes: 20 * time.Second})},
		{name: "suspended for longer than the session", strike: func(b *bench) { b.clock.jump(20 * time.Second) }},
		{name: "suspended for less than the session", strike: func(b *bench) { b.clock.jump(5 * time.Second) }, survives: true},
	}
}

// endure runs a hardship and says what was seen.
func endure(t *testing.T, h hardship, opts ...client.Option) (v verdict) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, 1, append([]client.Option{client.WithSafetyMargin(0.05)}, opts...)...)
		var struck flag
		if h.faults != nil {
			b.suffer(func(c call) fault { return h.faults(c, struck.get()) })
		}
		s := b.open()
		l := b.acquire(s, "k")
		before := b.observe(l, 20*time.Second)
		struck.set(true)
		if h.strike != nil {
			h.strike(b)
		}
		v = b.observe(l, 60*time.Second)
		v.overlap += before.overlap
		if before.lostAt > 0 {
			v.lostAt = before.lostAt
		}
		b.nodes[0].wires.open()
	})
	return v
}

// judge says what is wrong with a verdict, or nothing.
func (h hardship) judge(v verdict) string {
	switch {
	case v.overlap > 0:
		return "the client believed for " + v.overlap.String() + " that it held what the store had freed"
	case h.survives && v.lostAt > 0:
		return "the lock was lost at " + v.lostAt.String() + " for nothing"
	case !h.survives && v.lostAt == 0:
		return "the loss was never declared"
	}
	return ""
}

func TestLossIsDeclaredBeforeTheStoreFreesTheLock(t *testing.T) {
	t.Parallel()
	for _, h := range hardships() {
		t.Run(h.name, func(t *testing.T) {
			t.Parallel()
			if wrong := h.judge(endure(t, h)); wrong != "" {
				t.Error(wrong)
			}
		})
	}
}

// TestWrongDeadlinesAreCaught shows that the table above can fail.
func TestWrongDeadlinesAreCaught(t *testing.T) {
	t.Parallel()
	arrival := func(_, received, guaranteed time.Duration, margin float64) time.Duration {
		return received + time.Duration(float64(guaranteed)*(1-margin))
	}
	late := func(sent, _, guaranteed time.Duration, margin float64) time.Duration {
		return sent + time.Duration(float64(guaranteed)*(1+margin))
	}
	early := func(sent, _, guaranteed time.Duration, _ float64) time.Duration { return sent + guaranteed/16 }
	mutants := []struct {
		name, caughtBy string
		option         func() client.Option
	}{
		{"counts from the arrival", "answers take three seconds, then no request arrives",
			func() client.Option { return client.WithReckoner(arrival) }},
		{"uses more than it was given", "every request lost",
			func() client.Option { return client.WithReckoner(late) }},
		{"gives up early", "answers take a second",
			func() client.Option { return client.WithReckoner(early) }},
		{"a wall clock that is set back", "every request lost",
			func() client.Option { return client.WithClock(setBack{newClock(), 22 * time.Second}) }},
		{"a clock that stops during suspend", "suspended for longer than the session",
			func() client.Option { return client.WithClock(newClock()) }},
	}
	for _, m := range mutants {
		t.Run(m.name, func(t *testing.T) {
			t.Parallel()
			for _, h := range hardships() {
				if h.name == m.caughtBy && h.judge(endure(t, h, client.Lazy(m.option))) == "" {
					t.Errorf("%q did not notice", h.name)
				}
			}
		})
	}
}

// setBack is a wall clock that somebody sets back by an hour after a while.
type setBack struct {
	*testClock
	after time.Duration
}

func (s setBack) Elapsed() time.Duration {
	if now := s.testClock.Elapsed(); now < s.after {
		return now
	} else {
		return now - time.Hour
	}
}

func TestDeadlineIsExact(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, 1)
		s := b.open()
		l := b.acquire(s, "k")
		b.linked()
		elapse(20 * time.Second)
		b.nodes[0].wires.shut()
		all := b.seen("heartbeat")
		deadline := all[len(all)-1].at + 15*time.Second*7/10
		rest(deadline - b.clock.Elapsed() - 1)
		if err := l.CheckStillHeld(); err != nil {
			t.Errorf("1ns before the deadline: %v", err)
		}
		if left := l.Deadline(); left != 1 {
			t.Errorf("time left = %v, want 1ns", left)
		}
		rest(1)
		if l.CheckStillHeld() == nil {
			t.Error("held at the deadline")
		}
		synctest.Wait()
		if l.Context().Err() == nil || s.State() != client.Lost || s.Deadline() != 0 || l.Deadline() != 0 {
			t.Error("the loss was not declared everywhere")
		}
		b.nodes[0].wires.open()
		elapse(time.Minute)
		if l.CheckStillHeld() == nil || s.State() != client.Lost {
			t.Error("a loss was taken back")
		}
	})
}

func TestTimerNeedNotFire(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, 1)
		l := b.acquire(b.open(), "k")
		b.clock.jump(11 * time.Second) // no timer has had a chance
		wantCode(t, l.CheckStillHeld(), lock.CodeLost)
		if l.Context().Err() == nil {
			t.Error("the lock's context still runs")
		}
	})
}

func TestAnswerAfterTheDeadlineRevivesNothing(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, 1)
		s := b.open()
		b.linked()
		elapse(time.Second)
		b.suffer(func(c call) fault {
			if c.name == "heartbeat" { // the machine sleeps while the answer is under way
				time.AfterFunc(50*time.Millisecond, func() { b.clock.jump(8 * time.Second) })
				return fault{answerTakes: 100 * time.Millisecond}
			}
			return fault{}
		})
		rest(3 * time.Second)
		wantCode(t, s.Err(), lock.CodeSessionDead)
	})
}

func TestSuspendIsNoticedWithoutAnybodyAsking(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, 1)
		l := b.acquire(b.open(), "k")
		b.linked()
		b.nodes[0].wires.shut() // the heartbeats do not notice either
		elapse(4 * time.Second)
		b.clock.jump(11 * time.Second)
		elapse(time.Second)
		if l.Context().Err() == nil {
			t.Error("a second after the machine woke up the lock's context still runs")
		}
		b.nodes[0].wires.open()
	})
}

// TestNoPlanOfFaultsMakesBeliefOutliveTruth draws what happens to each heartbeat and when the
// machine sleeps.
func TestNoPlanOfFaultsMakesBeliefOutliveTruth(t *testing.T) {
	t.Parallel()
	delay := rapid.OneOf(rapid.Just(time.Duration(0)), rapid.Map(rapid.IntRange(0, 6000),
		func(ms int) time.Duration { return time.Duration(ms) * time.Millisecond }))
	faults := rapid.Custom(func(rt *rapid.T) fault {
		return fault{
			requestTakes: delay.Draw(rt, "request takes"),
			answerTakes:  delay.Draw(rt, "answer takes"),
			requestLost:  rapid.IntRange(0, 5).Draw(rt, "request lost") == 0,
			answerLost:   rapid.IntRange(0, 5).Draw(rt, "answer lost") == 0,
		}
	})
	rapid.Check(t, func(rt *rapid.T) {
		plan := rapid.SliceOfN(faults, 1, 12).Draw(rt, "plan")
		ttl := time.Duration(rapid.IntRange(2, 15).Draw(rt, "ttl")) * time.Second
		jump := delay.Draw(rt, "sleep")
		jumpAt := delay.Draw(rt, "sleep at")
		margin := float64(rapid.IntRange(1, 50).Draw(rt, "margin")) / 100
		var v verdict
		synctest.Test(t, func(t *testing.T) {
			b := newBench(t, 1, client.WithSafetyMargin(margin))
			b.suffer(func(c call) fault {
				if c.name == "heartbeat" {
					return plan[(c.n-1)%len(plan)]
				}
				return fault{}
			})
			l := b.acquire(b.open(client.WithTTL(ttl)), "k")
			time.AfterFunc(jumpAt, func() { b.clock.jump(jump) })
			v = b.observe(l, 20*time.Second)
		})
		if v.overlap > 0 {
			rt.Fatalf("believed for %v what the store had freed", v.overlap)
		}
	})
}
