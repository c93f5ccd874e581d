package stack_test

import (
	"testing"

	"github.com/fencelock/fencelock/tools/drills/judge"
	"github.com/fencelock/fencelock/tools/drills/stack"
)

// The drills of this file break the lock service itself, and see that the judge says so. What the switches of the
// fencing experiment break is there.

// TestTwoLockServicesBreakExclusion has two executors ask two lock services that know nothing of each other, so that both are
// granted the same locks at the same time. The fences do not need to know why: the books are right all the same.
func TestTwoLockServicesBreakExclusion(t *testing.T) {
	t.Parallel()
	s := stack.Start(t, programs, stack.Options{Backend: stack.Etcd})
	must(t, "set faults", s.SetFaults(t.Context(), stack.Faults{Latency: "100ms"}))
	s.StartExecutor("one", 4)
	s.ReplaceLock("another lockserver")
	must(t, "raise the floor", s.RaiseFloor(t.Context(), 1_000_000_000)) // so that no token is equal to one of the first
	s.StartExecutor("two", 4)
	must(t, "seed", s.Seed(t.Context(), "", 2, 40))
	s.AwaitOver(quietly)
	if total(t, s, "lock_fenced_out_total") == 0 {
		t.Error("nobody was fenced out")
	}
	evidence := verdict(t, s, "INV-06")
	if got := len(evidence.Transfers); got != 40 {
		t.Errorf("%d requests at the rail; want 40", got)
	}
}

// TestAnEmptyStoreBreaksTheOrderOfTokens has the lock server lose all it has, notes of its own included, and begin anew. Its tokens are below
// the fences, which refuse them until an operator raises the floor.
func TestAnEmptyStoreBreaksTheOrderOfTokens(t *testing.T) {
	t.Parallel()
	s := stack.Start(t, programs, stack.Options{Backend: stack.Etcd})
	must(t, "seed", s.Seed(t.Context(), "", 1, 20))
	s.StartExecutor("one", 4)
	s.AwaitOver(quietly)
	must(t, "stop executors", s.StopExecutors())
	s.Lock.Kill()
	s.ReplaceLock("lockserver")
	must(t, "create payout", s.Create(t.Context(), stack.Order{ID: "later", Account: "account-0", Amount: 7}))
	s.StartExecutor("two", 4)
	s.Eventually("somebody is fenced out", func() bool { return total(t, s, "lock_fenced_out_total") > 0 })
	must(t, "raise the floor", s.RaiseFloor(t.Context(), 1_000_000_000))
	s.AwaitState("later", judge.Posted)
	verdict(t, s, "INV-04")
}

// TestAMadeUpTokenIsAWriteWithoutAGrant has somebody write under a token that no lock server has granted.
func TestAMadeUpTokenIsAWriteWithoutAGrant(t *testing.T) {
	t.Parallel()
	s := stack.Start(t, programs, stack.Options{Backend: stack.Etcd})
	must(t, "seed", s.Seed(t.Context(), "", 2, 10))
	must(t, "claim", s.Claim(t.Context(), "payout-0", "account-0", 1))
	s.StartExecutor("one", 4)
	s.AwaitOver(quietly)
	verdict(t, s, "INV-07")
}
