package worker

import (
	"context"
	"fmt"
	"time"

	"github.com/fencelock/fencelock/apps/payout-executor/internal/payout"
)

// Backlog lists payouts.
type Backlog interface {
	// List returns a page of the payouts in some states, oldest first; next is empty on the last page.
	List(ctx context.Context, states []payout.State, size int, token string) (found []payout.Payout, next string, err error)
}

const (
	// pageSize is how many payouts are asked for at once.
	pageSize = 500
	// maxPages bounds what one poll asks for. The next one goes on from there.
	maxPages = 8
	// accountsPerPlace is how many accounts a poll wants to find for each payout that may be in work.
	accountsPerPlace = 4
)

// scanner polls the backlog.
type scanner struct {
	backlog Backlog
	// accounts is how many different ones are enough.
	accounts int
	// next is where the poll of each list goes on behind its first page: an account with very many payouts hides others behind it.
	next map[string]string
}

// scan is what a poll found.
type scan struct {
	waiting []payout.Payout
	// looked: ambiguous was asked for.
	looked    bool
	ambiguous []payout.Payout
	// oldest is when the oldest payout was asked for that is neither over nor ambiguous; zero if there is none.
	oldest time.Time
	err    error
}

// run polls; ambiguous payouts only if told to. Those that must wait are found, but what is behind them is looked for as well.
func (s *scanner) run(ctx context.Context, look bool, waits func(payout.Payout) bool) scan {
	found := scan{looked: look}
	found.waiting, found.err = s.list(ctx, "waiting", waits,
		payout.StatePending, payout.StateClaimed, payout.StateRailSubmitted, payout.StateRailAcked)
	if found.err == nil && len(found.waiting) > 0 {
		found.oldest = found.waiting[0].CreatedAt
	}
	if found.err == nil && look {
		found.ambiguous, found.err = s.list(ctx, "ambiguous", waits, payout.StateRailAmbiguous)
	}
	return found
}

// list reads the first page of a list, and further ones, from where the last poll has stopped, until there are accounts enough.
func (s *scanner) list(
	ctx context.Context, name string, waits func(payout.Payout) bool, states ...payout.State,
) ([]payout.Payout, error) {
	found, next, err := s.backlog.List(ctx, states, pageSize, "")
	if err != nil {
		return nil, fmt.Errorf("list payouts: %w", err)
	}
	if next != "" && s.next[name] != "" {
		next = s.next[name]
	}
	accounts := map[string]bool{}
	count := func(page []payout.Payout) int {
		for _, p := range page {
			if !waits(p) {
				accounts[p.Account] = true
			}
		}
		return len(accounts)
	}
	enough := count(found) >= s.accounts
	for pages := 1; next != "" && pages < maxPages && !enough; pages++ {
		var page []payout.Payout
		if page, next, err = s.backlog.List(ctx, states, pageSize, next); err != nil {
			return nil, fmt.Errorf("list payouts: %w", err)
		}
		enough = count(page) >= s.accounts
		found = append(found, page...)
	}
	s.next[name] = next
	return found, nil
}
