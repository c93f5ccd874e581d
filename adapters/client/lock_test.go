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

func TestReleaseFreesTheKey(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, 1)
		s := b.open()
		l := b.acquire(s, "k", client.WithNamespace("default"))
		outcome, err := l.Release(t.Context())
		if outcome != client.Released || err != nil {
			t.Errorf("Release = %v, %v, want released", outcome, err)
		}
		wantCode(t, l.CheckStillHeld(), lock.CodeLost)
		if l.Context().Err() == nil || l.Deadline() != 0 {
			t.Error("the lock goes on after its release")
		}
		if again, err := l.Release(t.Context()); again != client.AlreadyOver || err != nil {
			t.Errorf("second Release = %v, %v, want already over", again, err)
		}
		if s.State() != client.Safe {
			t.Error("the session ended with the lock")
		}
		b.acquire(s, "k")
	})
}

func TestReleaseWhoseAnswerWasLostIsAlreadyOver(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, 1)
		l := b.acquire(b.open(), "k")
		b.suffer(only("release", 1, fault{answerLost: true}))
		if outcome, err := l.Release(t.Context()); outcome != client.AlreadyOver || err != nil {
			t.Errorf("Release = %v, %v, want already over", outcome, err)
		}
	})
}

func TestReleaseThatFailsIsFinishedByAHeartbeat(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, 1)
		l := b.acquire(b.open(), "k")
		b.linked()
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if outcome, err := l.Release(ctx); outcome != 0 || !errors.Is(err, context.Canceled) {
			t.Errorf("Release = %v, %v, want the context's error", outcome, err)
		}
		elapse(8 * time.Second)
		if b.holds("k", l.Token()) {
			t.Error("two heartbeats later the store still holds the lock")
		}
	})
}

func TestLeaseHasADeadlineOfItsOwn(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, 1)
		s := b.open()
		l := b.acquire(s, "k", client.WithLease(5*time.Second))
		if left := l.Deadline(); left != 3500*time.Millisecond {
			t.Errorf("time left = %v, want 3.5s", left)
		}
		elapse(time.Second)
		b.suffer(only("extend", 1, fault{answerTakes: time.Second}))
		if err := l.Extend(t.Context(), 10*time.Second); err != nil {
			t.Fatal(err)
		}
		if left := l.Deadline(); left != 6*time.Second { // 7s from the sending
			t.Errorf("time left after the extension = %v, want 6s", left)
		}
		elapse(6*time.Second - 1)
		if err := l.CheckStillHeld(); err != nil {
			t.Errorf("before the deadline: %v", err)
		}
		elapse(1)
		if l.Context().Err() == nil {
			t.Error("the context outlived the lease")
		}
		wantCode(t, l.CheckStillHeld(), lock.CodeLost)
		wantCode(t, l.Extend(t.Context(), 10*time.Second), lock.CodeLost)
		if s.State() != client.Safe {
			t.Error("the session ended with the lease")
		}
	})
}

// TestLeaseOfTheServersOwnIsHeeded: a server may cap grants whose acquirer asked for no lease.
func TestLeaseOfTheServersOwnIsHeeded(t *testing.T) {
	t.Parallel()
	for name, unary := range map[string]bool{"on the stream": false, "as unary calls": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				b := newBench(t, 1, unaryIf(unary)...)
				b.lease(5 * time.Second)
				s, next := b.open(), b.open()
				if !unary {
					b.linked()
				}
				l := b.acquire(s, "k")
				if left := l.Deadline(); left != 3500*time.Millisecond {
					t.Errorf("time left = %v, want 3.5s", left)
				}
				elapse(time.Second)
				if err := l.Extend(t.Context(), 10*time.Second); err != nil {
					t.Fatal(err)
				}
				if left := l.Deadline(); left != 7*time.Second {
					t.Errorf("time left after the extension = %v, want 7s", left)
				}
				if v := b.observe(l, 20*time.Second); v.overlap > 0 || v.lostAt == 0 {
					t.Errorf("believed for %v what the store had freed; lost at %v", v.overlap, v.lostAt)
				}
				wantCode(t, context.Cause(l.Context()), lock.CodeLost)
				b.acquire(next, "k")
			})
		})
	}
}

func TestLeaseThatAnExtensionBringsIsHeeded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, 1)
		l := b.acquire(b.open(), "k")
		b.mu.Lock()
		b.grants["k"].ends = b.clock.Elapsed() + 10*time.Second
		b.mu.Unlock()
		if err := l.Extend(t.Context(), 0); err != nil {
			t.Fatal(err)
		}
		if left := l.Deadline(); left != 7*time.Second {
			t.Errorf("time left = %v, want 7s of the lease", left)
		}
	})
}

func TestLeaseCountsFromTheSendingPlusTheTimeInLine(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, 1)
		holder := b.acquire(b.open(), "k")
		s := b.open()
		b.linked()
		b.suffer(func(c call) fault {
			if c.name == "acquire" {
				return fault{answerTakes: time.Second}
			}
			return fault{}
		})
		time.AfterFunc(4*time.Second, func() { _, _ = holder.Release(t.Context()) })
		l, err := s.Acquire(t.Context(), "k", client.WithLease(5*time.Second))
		if err != nil {
			t.Fatal(err)
		}
		// Sent at 0, granted at 4s, answered at 5s: 4s + 3.5s is 2.5s from now.
		if left := l.Deadline(); left != 2500*time.Millisecond {
			t.Errorf("time left = %v, want 2.5s", left)
		}
	})
}

func TestExtendWithoutALeaseChangesNothing(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, 1)
		l := b.acquire(b.open(), "k")
		if err := l.Extend(t.Context(), 0); err != nil {
			t.Error(err)
		}
		wantCode(t, l.Extend(t.Context(), time.Second), lock.CodeInvalid)
		if err := l.CheckStillHeld(); err != nil {
			t.Error(err)
		}
	})
}

func TestExtendOfAGrantThatIsOverIsLost(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, 1)
		l := b.acquire(b.open(), "k", client.WithLease(10*time.Second))
		b.drop("k")
		wantCode(t, l.Extend(t.Context(), 0), lock.CodeLost)
		wantCode(t, l.CheckStillHeld(), lock.CodeLost)
	})
}

func TestExtendNeverLosesForABlip(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, 1, client.WithCallTimeout(time.Second))
		l := b.acquire(b.open(), "k", client.WithLease(10*time.Second))
		b.suffer(func(c call) fault {
			if c.name == "extend" {
				return fault{err: lock.ErrContention}
			}
			return fault{}
		})
		wantCode(t, l.Extend(t.Context(), 0), lock.CodeContention)
		if err := l.CheckStillHeld(); err != nil {
			t.Error(err)
		}
	})
}

type contextKey struct{}

func TestLockContextKeepsValuesButNotTheEnd(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, 1)
		ctx, cancel := context.WithCancel(context.WithValue(t.Context(), contextKey{}, "v"))
		l, err := b.open().TryAcquire(ctx, "k")
		if err != nil {
			t.Fatal(err)
		}
		cancel()
		if l.Context().Err() != nil || l.Context().Value(contextKey{}) != "v" {
			t.Error("the lock's context is not that of the lock's life with the caller's values")
		}
	})
}

func TestDoRunsUnderTheLockAndFreesIt(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, 1)
		mine := errors.New("mine")
		var token lock.Token
		err := b.client.Do(t.Context(), "k", func(ctx context.Context, got lock.Token) error {
			token = got
			if !b.holds("k", got) || ctx.Err() != nil {
				t.Error("fn runs without the lock")
			}
			return mine
		}, client.WithOwner("me"), client.WithTTL(5*time.Second), client.WithWait(time.Second))
		if !errors.Is(err, mine) || lock.CodeOf(err) != "" {
			t.Errorf("error = %v, want fn's own", err)
		}
		if token == 0 || b.holds("k", token) {
			t.Error("the lock was not freed")
		}
	})
}

func TestDoStopsAtLossAndSaysSo(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, 1)
		err := b.client.Do(t.Context(), "k", func(ctx context.Context, token lock.Token) error {
			b.nodes[0].wires.shut()
			<-ctx.Done()
			if !b.holds("k", token) {
				t.Error("stopped after the store had freed the lock")
			}
			if !errors.Is(context.Cause(ctx), lock.ErrLost) {
				t.Errorf("cause = %v, want lost", context.Cause(ctx))
			}
			return nil
		})
		wantCode(t, err, lock.CodeLost)
		b.nodes[0].wires.open()
	})
}

func TestDoWithoutTheLockDoesNotRun(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, 1)
		b.acquire(b.open(), "k")
		err := b.client.Do(t.Context(), "k", func(context.Context, lock.Token) error {
			t.Error("fn ran")
			return nil
		}, client.WithWait(0))
		wantCode(t, err, lock.CodeHeld)
	})
}
