package account

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/fencelock/fencelock/adapters/postgres/guard"
	"github.com/fencelock/fencelock/apps/payments/internal/form"
	"github.com/fencelock/fencelock/apps/payments/internal/refusal"
	"github.com/fencelock/fencelock/core/fence"
	"github.com/fencelock/fencelock/core/lock"
)

// writeLimit bounds a write with its wait for other writers of the account, also where its caller would wait longer.
const writeLimit = 10 * time.Second

// Ref names a payout and the account that it leaves, both as the caller gave them: the lock is the account's, so a payout of
// another one is not there.
type Ref struct{ Payout, Account string }

func (r Ref) check() error {
	if err := form.ID("id", r.Payout); err != nil {
		return err
	}
	return form.ID("account", r.Account)
}

// Claim is the first write of a grant. A [Pending] payout becomes [Claimed]; one that an earlier holder left behind keeps its
// state. It returns what is true until a newer grant claims.
//
// Errors: [lock.ErrFencedOut] unless the token is above the account's fence, or this very claim was made before;
// [refusal.WrongState] for a payout that is over; [refusal.NotFound].
func (s *Store) Claim(ctx context.Context, ref Ref, token lock.Token) (View, error) {
	return s.write(ctx, ref, token, func(w writing) (View, error) {
		if s.fencing {
			if w.before.Account.Fence == token && w.before.Payout.Claim == token {
				return w.before, nil
			}
			if err := w.admit(fence.Above); err != nil {
				return View{}, err
			}
		} else if _, err := w.tx.Exec(w.ctx, raiseFence, ref.Account, token); err != nil {
			return View{}, err //nolint:wrapcheck // Within translates it
		}
		after := w.before.Payout
		if after.State.Terminal() {
			return View{}, wrongState(after.State, "the payout is over")
		}
		after.Claim = token
		if after.State == Pending {
			after.State, after.Token = Claimed, token
		}
		return w.save(after)
	})
}

// Step is a transition as its caller sees it.
type Step struct {
	From, To State
	// RailReference is the rail's name for the transfer; [RailAcked] needs it.
	RailReference string
	// Reason says why, for people.
	Reason string
}

func (s Step) check() error {
	if !Listed(s.From, s.To, ByAdvance) {
		return &UnlistedError{From: s.From, To: s.To}
	}
	if s.To == RailAcked && s.RailReference == "" {
		return lock.Invalid("rail_reference", "must be there for RAIL_ACKED")
	}
	if err := form.Text("rail_reference", s.RailReference, form.MaxDestination); err != nil {
		return err
	}
	return form.Text("reason", s.Reason, form.MaxReason)
}

// UnlistedError refuses a transition that [Transitions] does not list for the write. It is a [lock.ErrInvalid].
type UnlistedError struct{ From, To State }

// Error implements error.
func (e *UnlistedError) Error() string {
	return "transition " + string(e.From) + " to " + string(e.To) + " is not listed"
}

// Unwrap makes it a [lock.ErrInvalid].
func (e *UnlistedError) Unwrap() error {
	return lock.Invalid("to", "no such call takes a payout there from the state that it names")
}

// Advance moves a payout that this grant has claimed from one state to the next.
//
// Errors: [UnlistedError]; [lock.ErrFencedOut] unless the token equals the account's fence; [refusal.WrongState] unless the payout is
// in the state that the caller names and was claimed by this grant; on the way to [RailSubmitted] [refusal.InsufficientFunds] and
// [refusal.FundsReserved]; [refusal.Different] where the step was made before with another reference or reason; [refusal.NotFound].
func (s *Store) Advance(ctx context.Context, ref Ref, token lock.Token, step Step) (Payout, error) {
	if err := step.check(); err != nil {
		return Payout{}, err
	}
	v, err := s.write(ctx, ref, token, func(w writing) (View, error) {
		after := w.before.Payout
		if s.fencing {
			if err := w.admit(fence.Equal); err != nil {
				return View{}, err
			}
			if again, err := repeated(after, token, step); again || err != nil {
				return w.before, err
			}
			if after.State != step.From || after.Claim != token {
				return View{}, wrongState(after.State, "the payout is not where the caller saw it, or not claimed by this grant")
			}
			if err := w.afford(step.To); err != nil {
				return View{}, err
			}
		}
		after.State, after.Token, after.Reason = step.To, token, step.Reason
		if step.RailReference != "" {
			after.RailReference = step.RailReference
		}
		return w.save(after)
	})
	return v.Payout, err
}

// repeated reports whether a step was made before, by the same token.
func repeated(p Payout, token lock.Token, step Step) (bool, error) {
	if p.State != step.To || p.Token != token {
		return false, nil
	}
	if p.Reason != step.Reason || step.RailReference != "" && p.RailReference != step.RailReference {
		return false, refusal.New(refusal.Different, "the step was made before with another reference or reason")
	}
	return true, nil
}

// Post writes the ledger entries of a [RailAcked] payout and the account's new balance, which its caller computed from what
// [Store.Claim] had returned, and makes it [Posted]. The balance is below 0 where the rail has taken more than there was.
//
// Errors: [lock.ErrFencedOut] unless the token equals the account's fence; [refusal.WrongState] unless the payout is [RailAcked] and
// was claimed by this grant; [refusal.WrongBalance] unless the balance is the account's less the amount; [refusal.Different] where it
// was posted before with another balance; [refusal.NotFound].
func (s *Store) Post(ctx context.Context, ref Ref, token lock.Token, balanceAfter int64) (View, error) {
	return s.write(ctx, ref, token, func(w writing) (View, error) {
		after := w.before.Payout
		if s.fencing {
			if err := w.admit(fence.Equal); err != nil {
				return View{}, err
			}
			if after.State == Posted && after.Token == token {
				return w.before, sameBalance(w.before.Account, balanceAfter)
			}
			if after.State != RailAcked || after.Claim != token {
				return View{}, wrongState(after.State, "the payout is not acked, or not claimed by this grant")
			}
			if balanceAfter != w.before.Account.Balance-after.Amount {
				return View{}, refusal.New(refusal.WrongBalance, "it is not the account's balance less the amount")
			}
		}
		if _, err := w.tx.Exec(w.ctx, writeEntries, ref.Payout, ref.Account, after.Amount, token); err != nil {
			return View{}, err //nolint:wrapcheck // Within translates it
		}
		if _, err := w.tx.Exec(w.ctx, writeBalance, ref.Account, balanceAfter); err != nil {
			return View{}, err //nolint:wrapcheck // Within translates it
		}
		after.State, after.Token = Posted, token
		return w.save(after)
	})
}

// sameBalance compares a posting with the one before: since then nobody newer has claimed, and so nobody has written the balance.
func sameBalance(a Account, balance int64) error {
	if a.Balance == balance {
		return nil
	}
	return refusal.New(refusal.Different, "the payout was posted before with another balance")
}

func wrongState(state State, message string) *refusal.Error {
	return &refusal.Error{Code: refusal.WrongState, Message: message, State: string(state)}
}

// writing is a write while its transaction holds the row of the account.
type writing struct {
	ctx context.Context //nolint:containedctx // of the transaction, and as short-lived
	tx  pgx.Tx
	// before is what was found; nobody else writes it meanwhile.
	before View
	token  lock.Token
	marks  *guard.Marks
}

// admit asks the fence of the account.
func (w writing) admit(rule fence.Rule) error {
	return fence.New(w.marks.In(w.tx)).AdmitBy(w.ctx, rule, w.before.Account.ID, w.token)
}

// afford refuses to send a payout for which the account has not enough, without the money that the rail may have taken for others:
// no posting shows that yet.
func (w writing) afford(to State) error {
	if to != RailSubmitted {
		return nil
	}
	p, balance := w.before.Payout, w.before.Account.Balance
	if balance < p.Amount {
		return refusal.New(refusal.InsufficientFunds, "the balance is below the amount")
	}
	var promised int64
	if err := w.tx.QueryRow(w.ctx, sumPromised, p.Account, p.ID, promisedStates()).Scan(&promised); err != nil {
		return err //nolint:wrapcheck // Within translates it
	}
	if balance-promised < p.Amount {
		return refusal.New(refusal.FundsReserved, "the balance does not cover it beside the payouts that the rail may have taken")
	}
	return nil
}

// write runs do in a transaction that holds the row of the account.
func (s *Store) write(ctx context.Context, ref Ref, token lock.Token, do func(writing) (View, error)) (v View, err error) {
	if err := ref.check(); err != nil {
		return View{}, err
	}
	if err := lock.CheckToken(token); err != nil {
		return View{}, err
	}
	ctx, cancel := context.WithTimeout(ctx, writeLimit)
	defer cancel()
	done, err := s.turns.Take(ctx, ref.Account)
	if err != nil {
		return View{}, lock.Contention("others write to the account", false, err)
	}
	defer done()
	err = s.db.Within(ctx, func(ctx context.Context, tx pgx.Tx) error {
		w := writing{ctx: ctx, tx: tx, token: token, marks: s.fences}
		// The account first, always: who holds it may write its payouts, and two that wait for each other cannot be.
		if w.before.Account, err = one(ctx, tx, scanAccount, "there is no such account", lockAccount, ref.Account); err != nil {
			return err
		}
		if w.before.Payout, err = payoutOf(ctx, tx, ref.Payout); err != nil {
			return err
		}
		if w.before.Payout.Account != ref.Account {
			return refusal.New(refusal.NotFound, "there is no such payout")
		}
		v, err = do(w)
		return err
	})
	if err != nil {
		return View{}, err
	}
	return v, nil
}

// save writes a payout and the event of that, and returns the picture after it.
func (w writing) save(p Payout) (View, error) {
	before := w.before.Payout
	saved, err := one(w.ctx, w.tx, scanPayout, "there is no such payout", writeState,
		p.ID, p.Account, before.State, p.State, w.token, w.before.Account.Fence, p.Token, p.Claim, p.RailReference, p.Reason)
	if err != nil {
		return View{}, err
	}
	account, err := accountOf(w.ctx, w.tx, p.Account)
	return View{Payout: saved, Account: account}, err
}
