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

// only applies a fault to the nth call of a name.
func only(name string, n int, f fault) func(call) fault {
	return func(c call) fault {
		if c.name == name && c.n == n {
			return f
		}
		return fault{}
	}
}

func TestHeldSaysWhoHolds(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, 1)
		l := b.acquire(b.open(), "k")
		_, err := b.open().TryAcquire(t.Context(), "k")
		var held *client.HeldError
		if !errors.As(err, &held) || !errors.Is(err, lock.ErrHeld) {
			t.Fatalf("error = %v, want held", err)
		}
		if held.Token != l.Token() || held.Owner != "holder" || held.Waiters != 3 || held.Key != l.Key() || held.Since.IsZero() {
			t.Errorf("held = %+v", held)
		}
		if n := len(b.seen("acquire")); n != 2 {
			t.Errorf("%d acquires were sent, want 2: one without a wait does not ask again", n)
		}
		elapse(time.Minute)
		if n := len(b.seen("abandon")); n != 0 {
			t.Errorf("a definite answer was withdrawn %d times", n)
		}
	})
}

func TestSessionDoesNotReenter(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, 1)
		s := b.open()
		b.acquire(s, "k")
		_, err := s.TryAcquire(t.Context(), "k")
		wantCode(t, err, lock.CodeHeld)
	})
}

func TestLostAnswerIsAskedForAgainUnderTheSameID(t *testing.T) {
	t.Parallel()
	for name, unary := range map[string]bool{"on the stream": false, "as unary calls": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				b := newBench(t, 1, unaryIf(unary)...)
				s := b.open()
				if !unary {
					b.linked()
				}
				b.suffer(only("acquire", 1, fault{answerLost: true}))
				l := b.acquire(s, "k")
				acquires := b.seen("acquire")
				if len(acquires) != 2 || acquires[0].requestID != acquires[1].requestID {
					t.Fatalf("acquires = %+v, want two of one request id", acquires)
				}
				if l.Token() != 1 {
					t.Errorf("token = %d, want 1, that of the grant whose answer was lost", l.Token())
				}
			})
		})
	}
}

func TestWaitWhoseUnaryRequestWasLostIsAskedForAgain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, 1, client.WithUnaryOnly())
		s := b.open()
		b.suffer(only("acquire", 1, fault{requestLost: true}))
		begin := b.clock.Elapsed()
		if _, err := s.Acquire(t.Context(), "k"); err != nil {
			t.Fatalf("acquire: %v", err)
		}
		if took := b.clock.Elapsed() - begin; took > 30*time.Second {
			t.Errorf("a lost request was noticed after %v", took)
		}
		if s.Err() != nil {
			t.Errorf("the session is lost: %v", s.Err())
		}
	})
}

func unaryIf(unary bool) []client.Option {
	if unary {
		return []client.Option{client.WithUnaryOnly()}
	}
	return nil
}

func TestRetryableErrorsAreRetriedAndOthersAreNot(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, 1)
		s := b.open()
		b.suffer(only("acquire", 1, fault{err: lock.ErrNotLeader}))
		b.acquire(s, "k")
		b.suffer(only("acquire", 3, fault{err: lock.ErrDenied}))
		_, err := s.TryAcquire(t.Context(), "k2")
		wantCode(t, err, lock.CodeDenied)
		if n := len(b.seen("acquire")); n != 3 {
			t.Errorf("%d acquires were sent, want 3", n)
		}
		b.suffer(func(call) fault { return fault{err: lock.ErrDenied} })
		_, err = b.client.OpenSession(t.Context(), "tester")
		wantCode(t, err, lock.CodeDenied)
		if n := len(b.seen("open")); n != 2 {
			t.Errorf("%d sessions were asked for, want 2", n)
		}
	})
}

func TestCancelledAcquireReturnsAtOnceAndLeavesNothing(t *testing.T) {
	t.Parallel()
	for name, unary := range map[string]bool{"on the stream": false, "as unary calls": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				b := newBench(t, 1, unaryIf(unary)...)
				s := b.open()
				if !unary {
					b.linked()
				}
				b.suffer(only("acquire", 1, fault{answerTakes: 2 * time.Second}))
				ctx, cancel := context.WithCancel(t.Context())
				time.AfterFunc(time.Second, cancel)
				start := b.clock.Elapsed()
				_, err := s.Acquire(ctx, "k")
				if took := b.clock.Elapsed() - start; took != time.Second {
					t.Errorf("returned after %v, want with the context after 1s", took)
				}
				if !errors.Is(err, context.Canceled) || lock.CodeOf(err) != lock.CodeContention || lock.IsAmbiguous(err) {
					t.Errorf("error = %v, want a cancelled, settled contention", err)
				}
				elapse(5 * time.Second)
				acquires, abandons := b.seen("acquire"), b.seen("abandon")
				if len(abandons) != 1 || abandons[0].requestID != acquires[0].requestID {
					t.Fatalf("abandons = %+v, want one of the acquire's id", abandons)
				}
				if !unary && abandons[0].at < acquires[0].at+2*time.Second {
					t.Error("withdrawn before the acquire had ended")
				}
				if b.holds("k", 1) {
					t.Error("a grant stayed behind")
				}
			})
		})
	}
}

func TestWaitIsSentAndBoundsTheCall(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, 1)
		holder := b.acquire(b.open(), "k")
		s := b.open()
		start := b.clock.Elapsed()
		_, err := s.Acquire(t.Context(), "k", client.WithWait(3*time.Second))
		wantCode(t, err, lock.CodeHeld)
		if took := b.clock.Elapsed() - start; took != 3*time.Second {
			t.Errorf("waited %v, want 3s", took)
		}
		time.AfterFunc(2*time.Second, func() { _, _ = holder.Release(t.Context()) })
		start = b.clock.Elapsed()
		l, err := s.Acquire(t.Context(), "k", client.WithWait(time.Minute))
		if err != nil {
			t.Fatal(err)
		}
		if took := b.clock.Elapsed() - start; took != 2*time.Second {
			t.Errorf("granted after %v, want with the release after 2s", took)
		}
		if l.Token() <= holder.Token() {
			t.Errorf("token %d is not above %d", l.Token(), holder.Token())
		}
	})
}

func TestAcquireWithoutABoundWaitsForTheContext(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, 1)
		b.acquire(b.open(client.WithTTL(lock.MaxTTL)), "k")
		b.linked()
		ctx, cancel := context.WithTimeout(t.Context(), 61*time.Minute) // longer than a server lets wait
		defer cancel()
		_, err := b.open(client.WithTTL(lock.MaxTTL)).Acquire(ctx, "k")
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("error = %v, want the context's", err)
		}
		// The holder's, two that share the wait, and perhaps one in the last millisecond:
		// the server's deadline is cut to whole ones.
		if n := len(b.seen("acquire")); n < 3 || n > 4 {
			t.Errorf("%d acquires were sent, want 3 or 4", n)
		}
	})
}

func TestAcquireEndsWithTheSession(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, 1)
		b.acquire(b.open(), "k")
		s := b.open()
		time.AfterFunc(time.Minute, func() { b.nodes[0].wires.shut() })
		start := b.clock.Elapsed()
		_, err := s.Acquire(t.Context(), "k")
		wantCode(t, err, lock.CodeSessionDead)
		if took := b.clock.Elapsed() - start; took > time.Minute+11*time.Second {
			t.Errorf("ended %v after the network died", took-time.Minute)
		}
		b.nodes[0].wires.open()
	})
}

func TestGrantAnsweredAfterTheDeadlineIsRefusedAndWithdrawn(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, 1)
		s := b.open()
		b.linked()
		b.suffer(func(c call) fault {
			if c.name == "acquire" {
				b.clock.jump(10400 * time.Millisecond) // the machine sleeps while the answer is under way
				return fault{answerTakes: 200 * time.Millisecond}
			}
			return fault{}
		})
		l, err := s.TryAcquire(t.Context(), "k")
		if err == nil {
			t.Fatalf("a lock was returned: %v", l.CheckStillHeld())
		}
		wantCode(t, err, lock.CodeSessionDead)
		elapse(time.Second)
		if len(b.seen("abandon")) != 1 {
			t.Error("the grant was not withdrawn")
		}
	})
}

func TestBadInputIsRefusedBeforeAnythingIsSent(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, 1)
		s := b.open()
		for name, err := range map[string]error{
			"no key":         second(s.TryAcquire(t.Context(), "")),
			"double slash":   second(s.TryAcquire(t.Context(), "a//b")),
			"bad namespace":  second(s.TryAcquire(t.Context(), "k", client.WithNamespace("A"))),
			"short lease":    second(s.TryAcquire(t.Context(), "k", client.WithLease(time.Second))),
			"negative lease": second(s.TryAcquire(t.Context(), "k", client.WithLease(-1))),
			"negative wait":  second(s.Acquire(t.Context(), "k", client.WithWait(-1))),
			"bad metadata":   second(s.TryAcquire(t.Context(), "k", client.WithMetadata(map[string]string{"": "x"}))),
			"no owner":       second(b.client.OpenSession(t.Context(), "")),
			"zero TTL":       second(b.client.OpenSession(t.Context(), "o", client.WithTTL(0))),
			"long TTL":       second(b.client.OpenSession(t.Context(), "o", client.WithTTL(time.Hour))),
			"no endpoint":    second(client.New(nil)),
			"odd endpoint":   second(client.New([]string{"ftp://x"})),
			"odd margin":     second(client.New([]string{"x:1"}, client.WithSafetyMargin(1))),
			"odd timeout":    second(client.New([]string{"x:1"}, client.WithCallTimeout(0))),
		} {
			if lock.CodeOf(err) != lock.CodeInvalid {
				t.Errorf("%s: error = %v, want invalid", name, err)
			}
		}
		if n := len(b.seen("acquire")) + len(b.seen("open")); n != 1 {
			t.Errorf("%d requests were sent, want the one that opened the session", n)
		}
	})
}

func second[T any](_ T, err error) error { return err }
