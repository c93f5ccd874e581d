package main

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/fencelock/fencelock/adapters/client"
	"github.com/fencelock/fencelock/apps/payout-executor/internal/locks"
	"github.com/fencelock/fencelock/apps/payout-executor/internal/model"
	"github.com/fencelock/fencelock/apps/payout-executor/internal/payout"
	"github.com/fencelock/fencelock/apps/payout-executor/internal/remote"
	"github.com/fencelock/fencelock/apps/payout-executor/internal/worker"
)

// tally counts outcomes.
type tally struct {
	mu    sync.Mutex
	count map[payout.Outcome]int
}

func (c *tally) add(o payout.Outcome) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.count[o]++
}

func (c *tally) of(o payout.Outcome) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.count[o]
}

// pool runs an executor's pool on the stage until the test ends, and counts what it does.
func (s *stage) pool(t *testing.T, concurrency int, interval time.Duration, p ports) (stop func(), c *tally) {
	t.Helper()
	c = &tally{count: map[payout.Outcome]int{}}
	e, _ := p.executor()
	pool := worker.New(worker.Config{
		Backlog: p.payments.(worker.Backlog), Concurrency: concurrency, Interval: interval, Failed: func(error) {}, Idle: func() {},
		Execute: func(ctx context.Context, p payout.Payout) payout.Result {
			result := e.Execute(ctx, p)
			c.add(result.Outcome)
			return result
		},
	})
	pool.Start()
	stop = sync.OnceFunc(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), eventually)
		defer cancel()
		p.locks.(*locks.Locks).Drain()
		if err := pool.Stop(ctx); err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(stop)
	return stop, c
}

var _ worker.Backlog = (*remote.Payments)(nil)

// crowd makes accounts with payouts each, in turn as customers come.
func (s *stage) crowd(accounts, each int) {
	for a := range accounts {
		s.Open(fmt.Sprint("a", a), 1_000_000)
	}
	for n := range each {
		for a := range accounts {
			s.Ask(fmt.Sprintf("p%d-%d", a, n), fmt.Sprint("a", a), int64(n+1), "bob")
		}
	}
}

// TestAFleetSharesABacklog: several executors that know nothing of each other, fewer calls than payouts wasted, nothing done twice.
func TestAFleetSharesABacklog(t *testing.T) {
	t.Parallel()
	s := emptyStage(t)
	const accounts, each, executors = 50, 10, 3
	s.crowd(accounts, each)
	began := time.Now()
	var tallies []*tally
	var stops []func()
	for range executors {
		stop, c := s.pool(t, 8, time.Second, s.ports(t))
		tallies, stops = append(tallies, c), append(stops, stop)
	}
	until(t, "the backlog is empty", func() bool { return s.Backlog() == 0 })
	took := time.Since(began)
	for _, stop := range stops {
		stop()
	}
	wasted := 0
	for i, c := range tallies {
		t.Logf("executor %d: %v", i, c.count)
		wasted += c.of(payout.Contended) + c.of(payout.Over)
		if c.of(payout.Posted) == 0 {
			t.Errorf("executor %d did nothing", i)
		}
	}
	t.Logf("%d payouts of %d accounts by %d executors: %v, %d tries in vain", accounts*each, accounts, executors, took, wasted)
	if wasted > accounts*each {
		t.Errorf("%d tries in vain", wasted)
	}
	if n := len(s.Transfers()); n != accounts*each {
		t.Errorf("%d transfers", n)
	}
	if n := s.Refused(); n != 0 {
		t.Errorf("%d calls were fenced out", n)
	}
	for _, fault := range s.faults() {
		t.Error(fault)
	}
}

// TestAnAccountWithVeryManyPayoutsDelaysNobody: those of others come much later in the list.
func TestAnAccountWithVeryManyPayoutsDelaysNobody(t *testing.T) {
	t.Parallel()
	s := emptyStage(t)
	s.Open("big", 1_000_000)
	for n := range 6000 {
		s.Ask(fmt.Sprint("big", n), "big", 1, "bob")
	}
	for n := range 5 {
		s.Open(fmt.Sprint("small", n), 10)
		s.Ask(fmt.Sprint("small-", n), fmt.Sprint("small", n), 1, "bob")
	}
	s.pool(t, 4, 200*time.Millisecond, s.ports(t))
	for n := range 5 {
		until(t, "the small ones are paid", func() bool { return s.State(fmt.Sprint("small-", n)) == wire(payout.StatePosted) })
	}
	if left := s.Backlog(); left == 0 {
		t.Error("the big one was done before: this shows nothing")
	}
}

// TestOneBadPayoutHoldsUpNoOther: a payout that is refused for good, and one whose fate nobody knows, of the same account.
func TestOneBadPayoutHoldsUpNoOther(t *testing.T) {
	t.Parallel()
	s := emptyStage(t)
	s.Open("a", 100)
	s.Ask("refused", "a", 1, "bob")
	s.Ask("lost", "a", 1, model.LostRequest)
	s.Ask("good", "a", 1, "bob")
	s.Weather(func(c model.Call) model.Passage {
		if c.Payout == "refused" && c.Method == "Claim" {
			return model.Passage{Refuse: model.NotFound()}
		}
		return model.Passage{}
	})
	s.pool(t, 2, 20*time.Millisecond, s.ports(t))
	until(t, "the good one is paid", func() bool { return s.State("good") == wire(payout.StatePosted) })
	until(t, "the other one is ambiguous", func() bool { return s.State("lost") == wire(payout.StateRailAmbiguous) })
}

// TestEvidenceThatComesLateIsFound: an ambiguous payout is looked at again.
func TestEvidenceThatComesLateIsFound(t *testing.T) {
	t.Parallel()
	s := emptyStage(t)
	s.Open("a", 100)
	s.Ask("lost", "a", 1, model.LostReply)
	s.Silence(true)
	_, c := s.pool(t, 2, 20*time.Millisecond, s.ports(t))
	until(t, "it was looked at in vain", func() bool { return c.of(payout.Unresolved) > 0 })
	s.Silence(false)
	until(t, "it is paid", func() bool { return s.State("lost") == wire(payout.StatePosted) })
	if n := s.Count("Submit"); n != 1 {
		t.Errorf("it was submitted %d times", n)
	}
}

// TestAPayoutWaitsForTheMoneyOfAnother: it is not sent while the rail may have taken the account's money. Once that is known it is paid
// out if the money is still there, and given up if not.
func TestAPayoutWaitsForTheMoneyOfAnother(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		other string
		fate  func(s *stage)
		want  payout.State
	}{
		"the rail has taken it": {model.LostReply, func(s *stage) { s.Silence(false) }, payout.StateAbandoned},
		"the rail has declined it": {model.LostRequest, func(s *stage) {
			s.Tamper(func(b *model.Books) { b.Submissions[0].Outcome = rejected })
		}, payout.StatePosted},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := emptyStage(t)
			s.Open("a", 100)
			s.Ask("other", "a", 60, test.other)
			s.Silence(true)
			_, c := s.pool(t, 2, 20*time.Millisecond, s.ports(t))
			until(t, "the other one is ambiguous", func() bool { return s.State("other") == wire(payout.StateRailAmbiguous) })
			s.Ask("waits", "a", 60, "bob")
			s.Ask("small", "a", 40, model.Decline)
			until(t, "it was refused, and again", func() bool { return c.of(payout.Reserved) > 1 })
			until(t, "there is enough for the small one", func() bool { return s.State("small") == wire(payout.StateFailed) })
			if got := s.State("waits"); got != wire(payout.StateClaimed) {
				t.Errorf("it is %s", got)
			}
			if c.of(payout.Left) != 0 {
				t.Errorf("%v", c.count)
			}
			test.fate(s)
			until(t, "it is over", func() bool { return s.State("waits") == wire(test.want) })
			until(t, "all is over", func() bool { return s.Backlog() == 0 && s.State("other") != wire(payout.StateRailAmbiguous) })
			if b := s.Balance("a"); b != 40 { // one of the two was paid
				t.Errorf("the balance is %d", b)
			}
			if n := len(s.Transfers()); n != 1 {
				t.Errorf("%d transfers", n)
			}
			for _, fault := range s.faults() {
				t.Error(fault)
			}
		})
	}
}

// TestWithoutALockNothingIsExecuted: the lock service is away from the start; once it is there the backlog drains.
func TestWithoutALockNothingIsExecuted(t *testing.T) {
	t.Parallel()
	s := emptyStage(t)
	s.crowd(5, 4)
	partition := s.locks
	address, stop, err := serveLocks(t.Context(), partition, "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	stop() // the address is known, and nobody is there
	s.lockURL = address
	_, c := s.pool(t, 4, 50*time.Millisecond, s.portsFor(t, time.Minute, client.WithCallTimeout(time.Second)))
	until(t, "some executions were left", func() bool { return c.of(payout.Left) > 4 })
	if calls := s.Calls(); len(calls) != 0 || s.Count("GetPayout") != 0 {
		t.Errorf("%d calls were made without a lock", len(calls))
	}
	_, stop, err = serveLocks(t.Context(), partition, address[len("http://"):])
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(stop)
	until(t, "the backlog is empty", func() bool { return s.Backlog() == 0 })
	for _, fault := range s.faults() {
		t.Error(fault)
	}
}

// TestALostSessionIsReplaced: the session dies in the middle of the work, again and again; the backlog drains all the same.
func TestALostSessionIsReplaced(t *testing.T) {
	t.Parallel()
	s := emptyStage(t)
	s.crowd(8, 60)
	stop, _ := s.pool(t, 4, 50*time.Millisecond, s.portsFor(t, 2*time.Second))
	for n := range 3 {
		done := s.Count("Post")
		until(t, "it goes on with a session", func() bool { return s.Count("Post") > done })
		until(t, fmt.Sprint("session ", n, " is there to be killed"), func() bool { return s.killSessions(t) > 0 })
	}
	until(t, "the backlog is empty", func() bool { return s.Backlog() == 0 })
	stop()
	if n := len(s.Transfers()); n != 480 {
		t.Errorf("%d transfers", n)
	}
	for _, fault := range s.faults() {
		t.Error(fault)
	}
}
