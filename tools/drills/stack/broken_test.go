package stack_test

import (
	"testing"

	"github.com/fencelock/fencelock/tools/drills/gate"
	"github.com/fencelock/fencelock/tools/drills/judge"
	"github.com/fencelock/fencelock/tools/drills/stack"
)

// The drills of this file break the lock service itself, and see that the judge says so. What the switches of the
// fencing experiment break is there.

// elsewhere is above all tokens that a store grants by itself in a test: those of two stores cannot be equal.
const elsewhere = 1_000_000_000

// TestTwoLockServicesBreakExclusion has two executors ask two lock services that know nothing of each other, so that both are
// granted the same lock at the same time. The fences do not need to know why: the books are right all the same.
func TestTwoLockServicesBreakExclusion(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	const id = "contested"
	s := stack.Start(t, programs, stack.Options{Backend: stack.Etcd})
	s.StartExecutor("one", 4)
	s.ReplaceLock("another lockserver")
	must(t, "raise the floor", s.RaiseFloor(ctx, elsewhere))
	two := s.StartExecutor("two", 4)
	two.Freeze()
	// One is told late that it may call the rail, when two has begun.
	begun := s.ToPayment.HoldAnswer(func(c gate.Call) bool { return c.Method == gate.Advance && c.Payout == id })
	must(t, "open account", s.OpenAccount(ctx, id, stack.Opening))
	must(t, "create payout", s.Create(ctx, stack.Order{ID: id, Account: id, Amount: 7}))
	s.Eventually("one has begun", func() bool { return reached(begun) })
	two.Thaw()
	s.AwaitState(id, judge.Posted)
	begun.Let()
	s.Eventually("one is fenced out", func() bool { return total(t, s, "lock_fenced_out_total") > 0 })
	evidence := verdict(t, s, "INV-06")
	if got := requests(evidence, id); got != 1 {
		t.Errorf("%d requests at the rail; want 1", got)
	}
}

// TestAnEmptyStoreBreaksTheOrderOfTokens has the lock server lose all it has, notes of its own included, and begin anew. Its tokens are below
// the fences, which refuse them until an operator raises the floor.
func TestAnEmptyStoreBreaksTheOrderOfTokens(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	s := stack.Start(t, programs, stack.Options{Backend: stack.Etcd})
	must(t, "raise the floor", s.RaiseFloor(ctx, elsewhere))
	must(t, "seed", s.Seed(ctx, "", 1, 20))
	s.StartExecutor("one", 4)
	s.AwaitOver(quietly)
	must(t, "stop executors", s.StopExecutors())
	s.Lock.Kill()
	s.ReplaceLock("lockserver")
	must(t, "create payout", s.Create(ctx, stack.Order{ID: "later", Account: "account-0", Amount: 7}))
	s.StartExecutor("two", 4)
	s.Eventually("somebody is fenced out", func() bool { return total(t, s, "lock_fenced_out_total") > 0 })
	must(t, "raise the floor", s.RaiseFloor(ctx, 2*elsewhere))
	s.AwaitState("later", judge.Posted)
	verdict(t, s, "INV-04")
}

// TestAMadeUpTokenIsAWriteWithoutAGrant has somebody write under a token that no lock server has granted.
func TestAMadeUpTokenIsAWriteWithoutAGrant(t *testing.T) {
	t.Parallel()
	s := stack.Start(t, programs, stack.Options{Backend: stack.Etcd})
	must(t, "seed", s.Seed(t.Context(), "", 2, 10))
	must(t, "claim", s.Write(t.Context(), gate.Claim, stack.Order{ID: "payout-0", Account: "account-0"}, "1"))
	s.StartExecutor("one", 4)
	s.AwaitOver(quietly)
	verdict(t, s, "INV-07")
}
