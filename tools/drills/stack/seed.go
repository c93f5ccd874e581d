package stack

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fencelock/fencelock/tools/drills/judge"
)

// Opening is the balance of a seeded account, in minor units: enough for whatever leaves it.
const Opening = 1_000_000

// seeders is how many calls make accounts and payouts at a time.
const seeders = 8

// Seed makes accounts and payouts of them in turn, with names that begin with prefix. Nothing in them is anybody's.
func (s *Stack) Seed(ctx context.Context, prefix string, accounts, payouts int) error {
	account := func(i int) string { return fmt.Sprintf("%saccount-%d", prefix, i%accounts) }
	err := inParallel(accounts, func(i int) error { return s.OpenAccount(ctx, account(i), Opening) })
	if err != nil {
		return err
	}
	return inParallel(payouts, func(i int) error {
		return s.Create(ctx, Order{ID: fmt.Sprintf("%spayout-%d", prefix, i), Account: account(i), Amount: int64(100 + i%37)})
	})
}

// inParallel calls do for 0 to n-1, some at a time, and returns the errors.
func inParallel(n int, do func(i int) error) error {
	var next atomic.Int64
	errs := make([]error, seeders)
	var all sync.WaitGroup
	for w := range errs {
		all.Go(func() {
			for i := int(next.Add(1)) - 1; i < n && errs[w] == nil; i = int(next.Add(1)) - 1 {
				errs[w] = do(i)
			}
		})
	}
	all.Wait()
	return errors.Join(errs...)
}

// patience is how long nothing may happen while there is something to do: far beyond what a busy machine needs.
const patience = 90 * time.Second

// lookEvery is the pause between two looks at something that changes.
const lookEvery = 200 * time.Millisecond

// tellEvery is the pause between two lines of progress.
const tellEvery = time.Second

// AwaitOver waits until all payouts are in a terminal state and returns them. It tells how many are where that has changed, and
// fails the test when that has not changed for very long.
func (s *Stack) AwaitOver(tell func(over int)) []Payout {
	s.t.Helper()
	return s.AwaitAll("are over", func(p Payout) bool { return p.State.Terminal() }, tell)
}

// AwaitAll is [Stack.AwaitOver] for another condition.
func (s *Stack) AwaitAll(what string, holds func(Payout) bool, tell func(int)) []Payout {
	s.t.Helper()
	var told time.Time
	last, changed := -1, time.Now()
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	for {
		payouts, err := s.Payouts(s.t.Context())
		if err != nil {
			s.t.Fatalf("%v", err)
		}
		n := 0
		for _, p := range payouts {
			if holds(p) {
				n++
			}
		}
		if n != last {
			last, changed = n, time.Now()
			if n == len(payouts) || time.Since(told) > tellEvery {
				told = time.Now()
				tell(n)
			}
		}
		switch {
		case n == len(payouts):
			return payouts
		case time.Since(changed) > patience:
			s.t.Fatalf("%d of %d payouts %s, and no more for %v; states: %v\n%s", n, len(payouts), what, patience, States(payouts), s.printed())
		}
		select {
		case <-tick.C:
		case <-s.t.Context().Done():
			s.t.Fatalf("interrupted: %v", context.Cause(s.t.Context()))
		}
	}
}

// AwaitState waits until a payout is in the state, and returns it.
func (s *Stack) AwaitState(id string, want judge.State) Payout {
	s.t.Helper()
	var p Payout
	s.Eventually(fmt.Sprintf("payout %s is %s", id, want), func() bool {
		var err error
		if p, err = s.Payout(s.t.Context(), id); err != nil {
			s.t.Fatalf("%v", err)
		}
		return p.State == want
	})
	return p
}

// Eventually looks again and again until the condition holds, and fails the test if it never does.
func (s *Stack) Eventually(what string, holds func() bool) {
	s.t.Helper()
	limit := time.NewTimer(patience)
	defer limit.Stop()
	tick := time.NewTicker(lookEvery / 4)
	defer tick.Stop()
	for !holds() {
		select {
		case <-tick.C:
		case <-s.t.Context().Done():
			s.t.Fatalf("interrupted before %s: %v", what, context.Cause(s.t.Context()))
		case <-limit.C:
			s.t.Fatalf("still not after %v: %s\n%s", patience, what, s.printed())
		}
	}
}

// shownBytes is how much of a program's output a failure shows.
const shownBytes = 2000

// printed is the end of what each program that runs has printed.
func (s *Stack) printed() string {
	text := ""
	show := func(name, out string) {
		text += fmt.Sprintf("--- %s:\n%s\n", name, out[max(0, len(out)-shownBytes):])
	}
	show("lockserver", s.Lock.Output())
	for _, service := range s.Services() {
		show(service.Name, service.Output())
	}
	for _, e := range s.executors {
		if !e.over {
			show(e.Name, e.Output())
		}
	}
	return text
}
