package reconcile

import (
	"context"
	"fmt"

	"github.com/fencelock/fencelock/apps/payout-executor/internal/payout"
	"github.com/fencelock/fencelock/apps/payout-executor/internal/remote"
)

// pageSize is how much is asked for at once.
const pageSize = 1000

// books are what the parts have written down, read in the order that the package's comment gives.
type books struct {
	// before and after are what the rail has; logged says that it was asked.
	before, after []remote.Transfer
	logged        bool
	payouts       []payout.Payout
	submissions   []payout.Submission
	ledger        remote.Ledger
}

func (r *Reconciler) read(ctx context.Context) (books, error) {
	b := books{logged: r.Log != nil}
	var err error
	if b.before, err = r.transfers(ctx); err != nil {
		return b, err
	}
	b.payouts, err = pages(func(token string) ([]payout.Payout, string, error) {
		return r.Payments.List(ctx, nil, pageSize, token)
	})
	if err != nil {
		return b, fmt.Errorf("list payouts: %w", err)
	}
	b.submissions, err = pages(func(token string) ([]payout.Submission, string, error) {
		return r.Rail.List(ctx, pageSize, token)
	})
	if err != nil {
		return b, fmt.Errorf("list submissions: %w", err)
	}
	if b.ledger, err = r.Payments.Ledger(ctx); err != nil {
		return b, fmt.Errorf("read ledger: %w", err)
	}
	b.after, err = r.transfers(ctx)
	return b, err
}

func (r *Reconciler) transfers(ctx context.Context) ([]remote.Transfer, error) {
	if r.Log == nil {
		return nil, nil
	}
	return r.Log(ctx)
}

// pages reads all pages of a listing.
func pages[E any](page func(token string) ([]E, string, error)) ([]E, error) {
	var all []E
	for token := ""; ; {
		found, next, err := page(token)
		if err != nil {
			return nil, err
		}
		all = append(all, found...)
		if next == "" {
			return all, nil
		}
		token = next
	}
}

// record is the submission of a payout, as far as the proxy knows.
type record struct {
	payout.Submission

	// count is how many there are. Of several the one that the rail has taken counts.
	count int
}

func (b books) records() map[string]record {
	records := map[string]record{}
	for _, s := range b.submissions {
		r := records[s.ID]
		r.count++
		if r.count == 1 || s.Outcome == payout.Acked {
			r.Submission = s
		}
		records[s.ID] = r
	}
	return records
}

// executed are the transfers of each payout that the rail has executed.
func executed(transfers []remote.Transfer) map[string][]remote.Transfer {
	found := map[string][]remote.Transfer{}
	for _, t := range transfers {
		if t.Executed {
			found[t.Payout] = append(found[t.Payout], t)
		}
	}
	return found
}
