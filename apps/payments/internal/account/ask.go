package account

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/fencelock/fencelock/apps/payments/internal/form"
	"github.com/fencelock/fencelock/apps/payments/internal/refusal"
	"github.com/fencelock/fencelock/core/lock"
)

// OpenAccount makes an account. Opening it again with the same balance returns it as it is now; with another one it is
// [refusal.Different].
func (s *Store) OpenAccount(ctx context.Context, id string, opening int64) (Account, error) {
	if err := form.ID("id", id); err != nil {
		return Account{}, err
	}
	if id == Rail {
		return Account{}, lock.Invalid("id", "is kept for money that has left")
	}
	if err := form.Balance("balance", opening); err != nil {
		return Account{}, err
	}
	var a Account
	err := s.db.Within(ctx, func(ctx context.Context, tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, insertAccount, id, opening); err != nil {
			return err //nolint:wrapcheck // Within translates it
		}
		found, err := accountOf(ctx, tx, id)
		if err == nil && found.Opening != opening {
			err = refusal.New(refusal.Different, "the account was opened with another balance")
		}
		a = found
		return err
	})
	return a, err
}

// NewPayout is a payout that is asked for.
type NewPayout struct {
	ID, Account string
	// Amount is in minor units.
	Amount      int64
	Destination string
}

func (p NewPayout) check() error {
	if err := form.ID("id", p.ID); err != nil {
		return err
	}
	if err := form.ID("account", p.Account); err != nil {
		return err
	}
	if err := form.Amount("amount", p.Amount); err != nil {
		return err
	}
	return form.Destination("destination", p.Destination)
}

// CreatePayout asks for a payout. Creating it again with the same values returns it as it is now; with others it is
// [refusal.Different]. Without its account it is [refusal.NotFound].
func (s *Store) CreatePayout(ctx context.Context, wanted NewPayout) (Payout, error) {
	if err := wanted.check(); err != nil {
		return Payout{}, err
	}
	var p Payout
	err := s.db.Within(ctx, func(ctx context.Context, tx pgx.Tx) error {
		if _, err := accountOf(ctx, tx, wanted.Account); err != nil {
			return err
		}
		if _, err := tx.Exec(ctx, insertPayout, wanted.ID, wanted.Account, wanted.Amount, wanted.Destination); err != nil {
			return err //nolint:wrapcheck // Within translates it
		}
		found, err := payoutOf(ctx, tx, wanted.ID)
		if err == nil && (NewPayout{found.ID, found.Account, found.Amount, found.Destination}) != wanted {
			err = refusal.New(refusal.Different, "the payout was created with other values")
		}
		p = found
		return err
	})
	return p, err
}
