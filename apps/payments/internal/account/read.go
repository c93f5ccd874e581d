package account

import (
	"context"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/fencelock/fencelock/apps/payments/internal/form"
	"github.com/fencelock/fencelock/apps/payments/internal/refusal"
	"github.com/fencelock/fencelock/core/lock"
)

// GetPayout reads a payout and its account.
func (s *Store) GetPayout(ctx context.Context, id string) (View, error) {
	if err := form.ID("id", id); err != nil {
		return View{}, err
	}
	var v View
	err := s.db.Picture(ctx, func(ctx context.Context, tx pgx.Tx) (err error) {
		if v.Payout, err = payoutOf(ctx, tx, id); err != nil {
			return err
		}
		v.Account, err = accountOf(ctx, tx, v.Payout.Account)
		return err
	})
	return v, err
}

// ListPayouts lists a page of the payouts in some states, oldest first; no states means all. next is the token of the next page.
func (s *Store) ListPayouts(ctx context.Context, states []State, size int32, token string) (page []Payout, next string, err error) {
	limit, after, err := form.Page(size, token)
	if err != nil {
		return nil, "", err
	}
	for _, state := range states {
		if !slices.Contains(States(), state) {
			return nil, "", lock.Invalid("states", "has one that no payout can be in")
		}
	}
	if states == nil {
		states = []State{}
	}
	err = s.db.Picture(ctx, func(ctx context.Context, tx pgx.Tx) error {
		page, err = many(ctx, tx, scanPayout, listPayouts, after, states, limit)
		return err
	})
	if len(page) > 0 {
		next = form.NextPage(limit, len(page), page[len(page)-1].Number)
	}
	return page, next, err
}

// ListEvents lists a page of all events, oldest first. Of two accounts, the one that was written first may come later.
func (s *Store) ListEvents(ctx context.Context, size int32, token string) (page []Event, next string, err error) {
	limit, after, err := form.Page(size, token)
	if err != nil {
		return nil, "", err
	}
	err = s.db.Picture(ctx, func(ctx context.Context, tx pgx.Tx) error {
		page, err = many(ctx, tx, scanEvent, listEvents, after, limit)
		return err
	})
	if len(page) > 0 {
		next = form.NextPage(limit, len(page), page[len(page)-1].Number)
	}
	return page, next, err
}

// Pages of the ledger go through all accounts, and then through all payouts that have entries, both by their ids. A page's token names
// the last thing on it: one of these and its id, with a slash between.
const (
	afterAccount = "account"
	afterPayout  = "payout"
)

// GetLedger reads a page of what the ledger says of an account and the payouts that it has entries of, or of all if id is empty, with
// [Rail]. Nobody keeps a balance of [Rail]: it is the sum of its entries. A page is of one moment. Two are not, but what was posted
// before the first was read is in one of them. next is the token of the next page.
func (s *Store) GetLedger(ctx context.Context, id string, size int32, token string) (l Ledger, next string, err error) {
	if id != "" {
		if err := form.ID("account", id); err != nil {
			return Ledger{}, "", err
		}
	}
	limit, _, err := form.Page(size, "")
	if err != nil {
		return Ledger{}, "", err
	}
	part, after, _ := strings.Cut(token, "/")
	if token != "" && (part != afterAccount && part != afterPayout || form.ID("page_token", after) != nil) {
		return Ledger{}, "", lock.Invalid("page_token", "is not of a page before")
	}
	err = s.db.Picture(ctx, func(ctx context.Context, tx pgx.Tx) (err error) {
		l = Ledger{}
		behind := after
		if part != afterPayout {
			behind = ""
			if l.Accounts, err = many(ctx, tx, pgx.RowToStructByPos[Sum], sumAccounts, id, after, limit); err != nil {
				return err
			}
			if token == "" && len(l.Accounts) == 0 {
				return refusal.New(refusal.NotFound, "there is no such account")
			}
		}
		groups := sumGroups
		if id != "" {
			groups = sumGroupsFor
		}
		l.Groups, err = many(ctx, tx, pgx.RowToStructByPos[Group], groups, id, behind, limit-len(l.Accounts))
		return err
	})
	switch {
	case err != nil:
		return Ledger{}, "", err
	case len(l.Accounts)+len(l.Groups) < limit:
	case len(l.Groups) > 0:
		next = afterPayout + "/" + l.Groups[len(l.Groups)-1].Payout
	default:
		next = afterAccount + "/" + l.Accounts[len(l.Accounts)-1].Account
	}
	return l, next, nil
}
