package worker

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/fencelock/fencelock/apps/payout-executor/internal/payout"
	"github.com/fencelock/fencelock/core/lock"
)

func waiting(account string, ids ...string) []payout.Payout {
	var found []payout.Payout
	for _, id := range ids {
		found = append(found, payout.Payout{Ref: payout.Ref{ID: id, Account: account}, State: payout.StatePending})
	}
	return found
}

// gives takes payouts until there is none to be had now.
func gives(b *book, now time.Time) (ids []string) {
	for {
		p, ok := b.next(now)
		if !ok {
			return ids
		}
		ids = append(ids, p.ID)
	}
}

func TestOnePayoutOfAnAccountIsInWork(t *testing.T) {
	t.Parallel()
	b, now := newBook(), time.Now()
	b.polled(slices.Concat(waiting("a", "a1", "a2"), waiting("b", "b1")))
	got := gives(b, now)
	slices.Sort(got)
	if !slices.Equal(got, []string{"a1", "b1"}) {
		t.Errorf("it gives %v", got)
	}
	// A poll that finds them again changes nothing.
	b.polling(now)
	b.polled(slices.Concat(waiting("a", "a1", "a2"), waiting("b", "b1")))
	if got := gives(b, now); got != nil {
		t.Errorf("it gives %v", got)
	}
	b.ended(waiting("a", "a1")[0], payout.Result{Outcome: payout.Posted}, now)
	if got := gives(b, now); !slices.Equal(got, []string{"a2"}) {
		t.Errorf("it gives %v", got)
	}
}

func TestWhatWasBegunComesFirstAndAmbiguousLast(t *testing.T) {
	t.Parallel()
	b, now := newBook(), time.Now()
	listed := waiting("a", "1", "2", "3")
	listed[1].State, listed[2].State = payout.StateRailAcked, payout.StateClaimed
	b.polled(listed)
	b.looked(waiting("a", "0"))
	var got []string
	for {
		p, ok := b.next(now)
		if !ok {
			break
		}
		got = append(got, p.ID)
		b.ended(p, payout.Result{Outcome: payout.Posted}, now)
	}
	if !slices.Equal(got, []string{"2", "3", "1", "0"}) {
		t.Errorf("it gives %v", got)
	}
}

// TestAPollIsOldNews: what has ended while a poll was under way is not executed again because of it.
func TestAPollIsOldNews(t *testing.T) {
	t.Parallel()
	b, now := newBook(), time.Now()
	b.polled(waiting("a", "1", "2"))
	first, _ := b.next(now)
	b.polling(now)
	b.ended(first, payout.Result{Outcome: payout.Posted}, now)
	b.polled(waiting("a", "1", "2"))
	if got := gives(b, now); !slices.Equal(got, []string{"2"}) {
		t.Errorf("it gives %v", got)
	}
	b.polling(now)
	b.polled(waiting("b", "1"))
	if got := gives(b, now); !slices.Equal(got, []string{"1"}) {
		t.Errorf("the next poll is news: it gives %v", got)
	}
}

// TestWhoMustWait: after each way in which an execution can end, which of the account's payouts may be executed at once, and which later.
func TestWhoMustWait(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		result payout.Result
		now    string
		later  string // within the longest pause, after the next poll
	}{
		"posted":     {payout.Result{Outcome: payout.Posted}, "2", "1"},
		"failed":     {payout.Result{Outcome: payout.Failed}, "2", "1"},
		"abandoned":  {payout.Result{Outcome: payout.Abandoned}, "2", "1"},
		"ambiguous":  {payout.Result{Outcome: payout.Ambiguous}, "2", "1"},
		"unresolved": {payout.Result{Outcome: payout.Unresolved}, "2", "1"},
		"reserved":   {payout.Result{Outcome: payout.Reserved}, "2", "1"},
		"contended":  {payout.Result{Outcome: payout.Contended}, "", "1"},
		"over":       {payout.Result{Outcome: payout.Over}, "", "1"},
		"lost":       {payout.Result{Outcome: payout.Left, Err: lock.ErrLost}, "", "1"},
		"fenced out": {payout.Result{Outcome: payout.Left, Err: lock.ErrFencedOut}, "", "1"},
		"no answer":  {payout.Result{Outcome: payout.Left, Err: lock.ErrContention}, "", "1"},
		"refused":    {payout.Result{Outcome: payout.Left, Err: &payout.RefusedError{Code: payout.NotFound}}, "2", "1"},
		"invalid":    {payout.Result{Outcome: payout.Left, Err: lock.ErrInvalid}, "2", "1"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b, now := newBook(), time.Now()
			b.polled(waiting("a", "1", "2"))
			first, _ := b.next(now)
			b.ended(first, test.result, now)
			p, _ := b.next(now)
			if p.ID != test.now {
				t.Errorf("at once it gives %q, want %q", p.ID, test.now)
			}
			if p.ID != "" {
				b.ended(p, payout.Result{Outcome: payout.Posted}, now)
			}
			later := now.Add(ambiguousPace().most)
			b.polling(later)
			b.polled(waiting("a", "1"))
			if p, _ := b.next(later); p.ID != test.later {
				t.Errorf("later it gives %q, want %q", p.ID, test.later)
			}
		})
	}
}

// TestWhatWaitsForOthersIsNotAskedForWithEachPoll: a payout that was refused, has no evidence yet, or whose money is reserved. Others of
// its account go on.
func TestWhatWaitsForOthersIsNotAskedForWithEachPoll(t *testing.T) {
	t.Parallel()
	for _, result := range []payout.Result{
		{Outcome: payout.Reserved}, {Outcome: payout.Unresolved}, {Outcome: payout.Left, Err: &payout.RefusedError{Code: payout.WrongState}},
	} {
		b, now := newBook(), time.Now()
		b.polled(waiting("a", "1"))
		first, _ := b.next(now)
		b.ended(first, result, now)
		b.polling(now)
		b.polled(waiting("a", "1", "2"))
		if got := gives(b, now); !slices.Equal(got, []string{"2"}) {
			t.Errorf("after %+v it gives %v", result, got)
		}
	}
}

// TestPausesGrowAndEnd: an account that fails again and again waits longer each time, to a limit, and from the beginning after a success.
func TestPausesGrowAndEnd(t *testing.T) {
	t.Parallel()
	b, now := newBook(), time.Now()
	fail := func() time.Duration {
		b.polling(now)
		b.polled(waiting("a", "1"))
		p, ok := b.next(now)
		if !ok {
			t.Fatal("it is not there")
		}
		b.ended(p, payout.Result{Outcome: payout.Left, Err: lock.ErrContention}, now)
		until := b.slow.until("a")
		pause := until.Sub(now)
		now = until
		return pause
	}
	first := fail()
	for range 20 {
		fail()
	}
	most := accountPace().most
	if last := fail(); first > accountPace().base || last < most/2 || last > most {
		t.Errorf("the first pause is %v, the last %v", first, last)
	}
	b.polling(now)
	b.polled(waiting("a", "1"))
	p, _ := b.next(now)
	b.ended(p, payout.Result{Outcome: payout.Posted}, now)
	if again := fail(); again > accountPace().base {
		t.Errorf("after a success the pause is %v", again)
	}
}

// TestAccountsShareThePlaces: one with very many payouts has maxRun of them in a row, then everybody else has a turn.
func TestAccountsShareThePlaces(t *testing.T) {
	t.Parallel()
	b, now := newBook(), time.Now()
	var ids []string
	for n := range 1000 {
		ids = append(ids, fmt.Sprint("big", n))
	}
	listed := waiting("big", ids...)
	for n := range 5 {
		listed = append(listed, waiting(fmt.Sprint("small", n), fmt.Sprint("s", n))...)
	}
	b.polled(listed)
	small := 0
	for executed := range 5 + maxRun {
		p, ok := b.next(now)
		if !ok {
			t.Fatalf("nothing is left after %d", executed)
		}
		if p.ID[0] == 's' {
			small++
		}
		b.ended(p, payout.Result{Outcome: payout.Posted}, now)
	}
	if small != 5 {
		t.Errorf("%d of 5 others had a turn", small)
	}
}

// TestProcessesBeginAtDifferentPlaces: the order of the accounts of a poll is drawn.
func TestProcessesBeginAtDifferentPlaces(t *testing.T) {
	t.Parallel()
	var listed []payout.Payout
	for n := range 50 {
		listed = append(listed, waiting(fmt.Sprint("a", n), fmt.Sprint("p", n))...)
	}
	begins := map[string]bool{}
	for range 20 {
		b := newBook()
		b.polled(listed)
		p, _ := b.next(time.Now())
		begins[p.ID] = true
	}
	if len(begins) < 5 {
		t.Errorf("20 processes begin at %d places", len(begins))
	}
}

// TestTheBookIsSound draws polls, executions and results, and looks that the book keeps its rules.
func TestTheBookIsSound(t *testing.T) {
	t.Parallel()
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	draw := rand.New(rand.NewPCG(seed, 0))
	b, now := newBook(), time.Now()
	inWork := map[string]payout.Payout{}
	results := []payout.Result{
		{Outcome: payout.Posted}, {Outcome: payout.Ambiguous}, {Outcome: payout.Contended}, {Outcome: payout.Over},
		{Outcome: payout.Reserved}, {Outcome: payout.Left, Err: lock.ErrContention}, {Outcome: payout.Left, Err: &payout.RefusedError{Code: payout.WrongState}},
	}
	list := func() (found []payout.Payout) {
		for n := range 12 {
			if draw.IntN(3) > 0 {
				found = append(found, waiting(fmt.Sprint("a", n%4), fmt.Sprint("p", n))...)
			}
		}
		return found
	}
	for range 20000 {
		now = now.Add(time.Duration(draw.IntN(200)) * time.Millisecond)
		switch draw.IntN(4) {
		case 0:
			b.polling(now)
			b.polled(list())
		case 1:
			b.looked(list()[:1])
		case 2:
			if p, ok := b.next(now); ok {
				if other, busy := inWork[p.Account]; busy {
					t.Fatalf("%s is given while %s of the account is in work", p.ID, other.ID)
				}
				if b.held.until(p.ID).After(now) || b.slow.until(p.Account).After(now) {
					t.Fatalf("%s should wait", p.ID)
				}
				inWork[p.Account] = p
			} else if wake := b.wake(now); !wake.IsZero() && !wake.After(now) {
				t.Fatal("something may be executed, and is not given")
			}
		case 3:
			for account, p := range inWork {
				delete(inWork, account)
				b.ended(p, results[draw.IntN(len(results))], now)
				break
			}
		}
		if b.inWork != len(inWork) {
			t.Fatalf("%d are in work, the book says %d", len(inWork), b.inWork)
		}
	}
}

func TestPenaltiesAreForgotten(t *testing.T) {
	t.Parallel()
	p, now := penalties{}, time.Now()
	p.raise("x", refusedPace(), now)
	p.tidy(now.Add(time.Minute))
	if len(p) != 1 {
		t.Error("it was forgotten too soon")
	}
	if p.tidy(now.Add(time.Hour)); len(p) != 0 {
		t.Error("it was not forgotten")
	}
}
