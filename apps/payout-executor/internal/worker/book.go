package worker

import (
	"errors"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/fencelock/fencelock/apps/payout-executor/internal/payout"
	"github.com/fencelock/fencelock/core/lock"
)

// book knows what was listed and whose turn it is. It is not safe for concurrent use.
type book struct {
	accounts map[string]*account
	// turns are the accounts that have something to give and are not in work, in the order of their turns.
	turns []*account
	// inWork is how many are.
	inWork int
	// slow are accounts, and held payouts, that must wait.
	slow, held penalties
	// done are payouts whose execution has ended since the poll that is under way began: what it says of them is old.
	done map[string]bool
}

// account is one of the payouts' accounts.
type account struct {
	name string
	// waiting are its payouts in their order, ambiguous those that wait for evidence.
	waiting, ambiguous []payout.Payout
	// current is the payout in work, or empty.
	current string
	// run is how many were executed in a row.
	run int
}

// maxRun is how many payouts of an account are executed in a row while others wait. Processes that keep at an account for a while meet
// less often.
const maxRun = 8

func newBook() *book {
	return &book{accounts: map[string]*account{}, slow: penalties{}, held: penalties{}, done: map[string]bool{}}
}

// polling: a poll begins.
func (b *book) polling(now time.Time) {
	b.done = map[string]bool{}
	b.slow.tidy(now)
	b.held.tidy(now)
}

// polled takes what a poll found, in the place of what earlier ones did.
func (b *book) polled(found []payout.Payout) {
	b.take(found, func(a *account, listed []payout.Payout) {
		// What was begun comes first: its money is on its way.
		slices.SortStableFunc(listed, func(x, y payout.Payout) int { return rank(x) - rank(y) })
		a.waiting = listed
	})
}

// looked is polled for ambiguous payouts.
func (b *book) looked(found []payout.Payout) {
	b.take(found, func(a *account, listed []payout.Payout) { a.ambiguous = listed })
}

func rank(p payout.Payout) int {
	if p.State.Begun() {
		return 0
	}
	return 1
}

// take gives each account what was listed for it, and turns to those that had none.
func (b *book) take(found []payout.Payout, set func(*account, []payout.Payout)) {
	listed := map[string][]payout.Payout{}
	for _, p := range found {
		a := b.accounts[p.Account]
		if a == nil {
			a = &account{name: p.Account}
			b.accounts[p.Account] = a
		}
		if a.current != p.ID && !b.done[p.ID] {
			listed[p.Account] = append(listed[p.Account], p)
		}
	}
	for name, a := range b.accounts {
		set(a, listed[name])
	}
	b.arrange()
}

// arrange forgets accounts that have nothing to give, and puts those that are new to the turns behind the others, shuffled.
func (b *book) arrange() {
	b.turns = slices.DeleteFunc(b.turns, func(a *account) bool { return a.empty() })
	known := map[*account]bool{}
	for _, a := range b.turns {
		known[a] = true
	}
	var added []*account
	for name, a := range b.accounts {
		switch {
		case a.current != "":
		case a.empty():
			delete(b.accounts, name)
		case !known[a]:
			added = append(added, a)
		}
	}
	rand.Shuffle(len(added), func(i, j int) { added[i], added[j] = added[j], added[i] }) //nolint:gosec // an order is no secret
	b.turns = append(b.turns, added...)
}

func (a *account) empty() bool { return len(a.waiting) == 0 && len(a.ambiguous) == 0 }

// next takes the first payout that may be executed now, and marks its account.
func (b *book) next(now time.Time) (payout.Payout, bool) {
	for i, a := range b.turns {
		if b.slow.until(a.name).After(now) {
			continue
		}
		if p, ok := b.first(a, now); ok {
			b.turns = slices.Delete(b.turns, i, i+1)
			a.current = p.ID
			b.inWork++
			return p, true
		}
	}
	return payout.Payout{}, false
}

// first takes an account's first payout that need not wait.
func (b *book) first(a *account, now time.Time) (payout.Payout, bool) {
	for _, list := range []*[]payout.Payout{&a.waiting, &a.ambiguous} {
		for i, p := range *list {
			if !b.held.until(p.ID).After(now) {
				*list = slices.Delete(*list, i, i+1)
				return p, true
			}
		}
	}
	return payout.Payout{}, false
}

// ended takes the result of an execution, and gives its account another turn if it has more.
func (b *book) ended(p payout.Payout, result payout.Result, now time.Time) {
	a := b.accounts[p.Account]
	a.current = ""
	b.inWork--
	b.done[p.ID] = true
	a.run++
	switch result.Outcome {
	case payout.Posted, payout.Failed, payout.Abandoned:
		delete(b.slow, a.name)
		delete(b.held, p.ID)
	case payout.Ambiguous, payout.Unresolved:
		b.held.raise(p.ID, ambiguousPace(), now)
	case payout.Reserved:
		b.held.raise(p.ID, refusedPace(), now)
	case payout.Contended, payout.Over:
		a.waiting, a.ambiguous = nil, nil // somebody else is at it
		b.slow.raise(a.name, contendedPace(), now)
	case payout.Left:
		b.left(a, p, result.Err, now)
	}
	if a.empty() {
		delete(b.accounts, a.name)
		return
	}
	if a.run < maxRun {
		b.turns = slices.Insert(b.turns, 0, a)
		return
	}
	a.run = 0
	b.turns = append(b.turns, a)
}

// left decides who must wait: the account, where what went wrong could be anybody's, or the payout, where it is about that one.
func (b *book) left(a *account, p payout.Payout, err error, now time.Time) {
	_, refused := errors.AsType[*payout.RefusedError](err)
	if refused || errors.Is(err, lock.ErrInvalid) {
		b.held.raise(p.ID, refusedPace(), now)
		return
	}
	b.slow.raise(a.name, accountPace(), now)
}

// waits tells of what must wait now. It may be asked while the book changes.
func (b *book) waits(now time.Time) func(payout.Payout) bool {
	slow, held := b.slow.raised(now), b.held.raised(now)
	return func(p payout.Payout) bool { return slow[p.Account] || held[p.ID] }
}

// wake is when something that waits may be executed, without a poll; zero if nothing waits.
func (b *book) wake(now time.Time) time.Time {
	var wake time.Time
	for _, a := range b.turns {
		at := later(b.slow.until(a.name), b.earliest(a))
		if at.Before(now) {
			at = now
		}
		if wake.IsZero() || at.Before(wake) {
			wake = at
		}
	}
	return wake
}

func (b *book) earliest(a *account) time.Time {
	var earliest time.Time
	for i, p := range slices.Concat(a.waiting, a.ambiguous) {
		if until := b.held.until(p.ID); i == 0 || until.Before(earliest) {
			earliest = until
		}
	}
	return earliest
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}
