package worker_test

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/fencelock/fencelock/apps/payout-executor/internal/payout"
	"github.com/fencelock/fencelock/apps/payout-executor/internal/worker"
	"github.com/fencelock/fencelock/core/lock"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// listing is a list of payouts, and when it was asked for.
type listing struct {
	mu      sync.Mutex
	payouts []payout.Payout
	polls   []time.Time
	looks   int
	err     error
}

// List implements worker.Backlog.
func (b *listing) List(_ context.Context, states []payout.State, size int, token string) ([]payout.Payout, string, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if states[0] == payout.StateRailAmbiguous {
		b.looks++
		return nil, "", b.err
	}
	if token == "" {
		b.polls = append(b.polls, time.Now())
	}
	from, _ := strconv.Atoi(token)
	to := min(from+size, len(b.payouts))
	if to < len(b.payouts) {
		return b.payouts[from:to:to], strconv.Itoa(to), b.err
	}
	return b.payouts[from:to:to], "", b.err
}

func (b *listing) add(account string, n int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for i := range n {
		b.payouts = append(b.payouts, payout.Payout{
			Ref: payout.Ref{ID: fmt.Sprint(account, "-", i), Account: account}, State: payout.StatePending, CreatedAt: time.Now(),
		})
	}
}

func (b *listing) remove(id string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for i, p := range b.payouts {
		if p.ID == id {
			b.payouts = append(b.payouts[:i:i], b.payouts[i+1:]...)
			return
		}
	}
}

func (b *listing) asked() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.polls)
}

// pool is one over a listing, and what it tells.
type pool struct {
	*worker.Pool
	mu           sync.Mutex
	failed, idle int
}

func newPool(b *listing, places int, execute func(context.Context, payout.Payout) payout.Result) *pool {
	p := &pool{}
	p.Pool = worker.New(worker.Config{
		Backlog: b, Execute: execute, Concurrency: places, Interval: time.Second,
		Failed: func(error) { p.count(&p.failed) }, Idle: func() { p.count(&p.idle) },
	})
	p.Start()
	return p
}

func (p *pool) count(n *int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	*n++
}

func (p *pool) counts() (failed, idle int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.failed, p.idle
}

// stop ends a pool that has nothing in work.
func (p *pool) stop(t *testing.T) {
	t.Helper()
	if err := p.Stop(t.Context()); err != nil {
		t.Error(err)
	}
}

func TestAnIdlePoolPollsAtItsInterval(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := &listing{}
		p := newPool(b, 4, nil)
		time.Sleep(100 * time.Second)
		p.stop(t)
		if n := b.asked(); n < 80 || n > 130 {
			t.Errorf("%d polls in 100 s", n)
		}
		if b.looks < 10 || b.looks > 25 {
			t.Errorf("%d polls for ambiguous payouts in 100 s", b.looks)
		}
		for i, at := range b.polls[4:] {
			if gap := at.Sub(b.polls[i+3]); gap < 500*time.Millisecond || gap > 1500*time.Millisecond {
				t.Errorf("%v between two polls", gap)
			}
		}
		if _, idle := p.counts(); idle != 1 {
			t.Errorf("it was idle %d times", idle)
		}
	})
}

func TestWorkIsBoundedAndDone(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := &listing{}
		for n := range 10 {
			b.add(fmt.Sprint("a", n), 10)
		}
		var mu sync.Mutex
		running, most, accounts := 0, 0, map[string]bool{}
		p := newPool(b, 4, func(_ context.Context, p payout.Payout) payout.Result {
			mu.Lock()
			running++
			most = max(most, running)
			if accounts[p.Account] {
				t.Errorf("two payouts of %s at once", p.Account)
			}
			accounts[p.Account] = true
			mu.Unlock()
			time.Sleep(100 * time.Millisecond)
			b.remove(p.ID)
			mu.Lock()
			running--
			accounts[p.Account] = false
			mu.Unlock()
			return payout.Result{Outcome: payout.Posted}
		})
		time.Sleep(3 * time.Second) // 100 payouts in 4 places, 0.1 s each
		p.stop(t)
		if len(b.payouts) != 0 || most != 4 {
			t.Errorf("%d are left, %d at once", len(b.payouts), most)
		}
		if _, idle := p.counts(); idle != 1 {
			t.Errorf("it was idle %d times", idle)
		}
	})
}

// TestAFailingServiceIsNotHammered: everything is left, for a minute.
func TestAFailingServiceIsNotHammered(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := &listing{}
		b.add("a", 3)
		tries := 0
		p := newPool(b, 4, func(context.Context, payout.Payout) payout.Result {
			tries++
			return payout.Result{Outcome: payout.Left, Err: lock.ErrContention}
		})
		time.Sleep(time.Minute)
		p.stop(t)
		if tries < 10 || tries > 40 || b.asked() > 100 {
			t.Errorf("%d tries and %d polls in a minute", tries, b.asked())
		}
	})
}

func TestAPollThatFailsIsTold(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := &listing{err: errors.New("away")}
		p := newPool(b, 4, func(context.Context, payout.Payout) payout.Result { return payout.Result{Outcome: payout.Contended} })
		time.Sleep(10 * time.Second)
		failed, _ := p.counts()
		b.mu.Lock()
		b.err = nil
		b.mu.Unlock()
		b.add("a", 1)
		time.Sleep(time.Hour)
		if age := p.Age(); age < time.Hour-10*time.Second || age > time.Hour {
			t.Errorf("the oldest is %v old", age)
		}
		p.stop(t)
		if failed < 5 {
			t.Errorf("it told of %d failures", failed)
		}
	})
}

// TestStoppingWaitsForTheWork and takes nothing new.
func TestStoppingWaitsForTheWork(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := &listing{}
		b.add("a", 2)
		executed := 0
		p := newPool(b, 4, func(ctx context.Context, _ payout.Payout) payout.Result {
			executed++
			time.Sleep(10 * time.Second)
			if ctx.Err() != nil {
				t.Error("the work was cut short")
			}
			return payout.Result{Outcome: payout.Posted}
		})
		synctest.Wait()
		began := time.Now()
		p.stop(t)
		if took := time.Since(began); took != 10*time.Second || executed != 1 {
			t.Errorf("it took %v, %d were executed", took, executed)
		}
	})
}

// TestStoppingIsBounded: the work is told to end, and the caller that it has not.
func TestStoppingIsBounded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := &listing{}
		b.add("a", 1)
		told := false
		p := newPool(b, 4, func(ctx context.Context, _ payout.Payout) payout.Result {
			<-ctx.Done()
			told = true
			return payout.Result{Outcome: payout.Left, Err: lock.ErrContention}
		})
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := p.Stop(ctx); !errors.Is(err, worker.ErrCutShort) {
			t.Errorf("it says %v", err)
		}
		synctest.Wait()
		if !told {
			t.Error("the work was not told to end")
		}
	})
}

// TestAVeryLongAccountHidesNobody: the first pages are all of one account; the others are found within a few polls.
func TestAVeryLongAccountHidesNobody(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := &listing{}
		b.add("big", 20_000)
		b.add("small", 1)
		done := make(chan time.Time, 1)
		began := time.Now()
		p := newPool(b, 2, func(_ context.Context, p payout.Payout) payout.Result {
			time.Sleep(time.Second)
			if p.Account == "small" {
				done <- time.Now()
			}
			b.remove(p.ID)
			return payout.Result{Outcome: payout.Posted}
		})
		if took := (<-done).Sub(began); took > 30*time.Second {
			t.Errorf("the small one waited %v", took)
		}
		p.stop(t)
	})
}

// TestRefusedPayoutsHideNobody: the oldest ones fill the first pages, are of accounts enough, and are refused each time.
func TestRefusedPayoutsHideNobody(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const refused, good = 1100, 30
		b := &listing{}
		for n := range refused + good {
			b.payouts = append(b.payouts, payout.Payout{
				Ref: payout.Ref{ID: fmt.Sprint(n), Account: fmt.Sprint("a", n%50)}, State: payout.StateClaimed,
			})
		}
		done := make(chan struct{}, good)
		p := newPool(b, 2, func(_ context.Context, p payout.Payout) payout.Result {
			time.Sleep(10 * time.Millisecond)
			if n, _ := strconv.Atoi(p.ID); n < refused {
				return payout.Result{Outcome: payout.Left, Err: &payout.RefusedError{Code: payout.WrongState}}
			}
			b.remove(p.ID)
			done <- struct{}{}
			return payout.Result{Outcome: payout.Posted}
		})
		began := time.Now()
		for range good {
			select {
			case <-done:
			case <-time.After(time.Hour):
				t.Fatal("those behind the refused ones are never executed")
			}
		}
		if took := time.Since(began); took > 5*time.Minute {
			t.Errorf("it took %v", took)
		}
		p.stop(t)
	})
}
