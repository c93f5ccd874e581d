package account_test

import (
	"testing"

	"github.com/fencelock/fencelock/apps/payments/internal/account"
	"github.com/fencelock/fencelock/apps/payments/internal/refusal"
)

// TestMoneyThatMayHaveLeftIsNotSpentAgain: the balance shows a payout only once it is posted. Until then, and for as long as nobody
// knows what the rail has done, what it takes is not there for another one.
func TestMoneyThatMayHaveLeftIsNotSpentAgain(t *testing.T) {
	t.Parallel()
	w := open(t, true)
	w.payout("r", "a", 901)
	w.claim("p", 33)
	w.advance("p", 33, account.Claimed, account.RailSubmitted)
	refusedNow := func(what string, code refusal.Code) {
		t.Helper()
		w.unchanged(what, func() {
			_, err := w.Advance(t.Context(), ref("r"), w.get("r").Account.Fence, step(account.Claimed, account.RailSubmitted))
			refused(t, what, err, code, "")
		})
	}
	w.claim("r", 34)
	refusedNow("the rail may have been called", refusal.FundsReserved)
	w.claim("p", 35)
	w.advance("p", 35, account.RailSubmitted, account.RailAmbiguous)
	w.claim("r", 36)
	refusedNow("nobody knows", refusal.FundsReserved)
	w.claim("p", 37)
	w.advance("p", 37, account.RailAmbiguous, account.RailAcked)
	w.claim("r", 38)
	refusedNow("the ledger does not show it yet", refusal.FundsReserved)
	w.claim("q", 39)
	w.advance("q", 39, account.Claimed, account.RailSubmitted) // there is enough for this one
	w.advance("q", 39, account.RailSubmitted, account.Failed)
	w.claim("p", 40)
	w.post("p", 40, 900)
	w.claim("r", 41)
	refusedNow("the balance is too low", refusal.InsufficientFunds)
	w.payout("s", "a", 900)
	w.claim("s", 42)
	w.advance("s", 42, account.Claimed, account.RailSubmitted)
	w.advance("s", 42, account.Claimed, account.RailSubmitted) // the answer was lost
}

// TestMoneyThatHasNotLeftIsThereAgain: the rail has declined the other payout.
func TestMoneyThatHasNotLeftIsThereAgain(t *testing.T) {
	t.Parallel()
	w := open(t, true)
	w.payout("r", "a", 901)
	w.claim("p", 33)
	w.advance("p", 33, account.Claimed, account.RailSubmitted)
	w.claim("r", 34)
	_, err := w.Advance(t.Context(), ref("r"), 34, step(account.Claimed, account.RailSubmitted))
	refused(t, "while nobody knows", err, refusal.FundsReserved, "")
	w.claim("p", 35)
	w.advance("p", 35, account.RailSubmitted, account.Failed)
	w.claim("r", 36)
	w.advance("r", 36, account.Claimed, account.RailSubmitted)
}

// TestMoneyThatIsReservedCanBeGivenUp: what may not be sent may still be abandoned.
func TestMoneyThatIsReservedCanBeGivenUp(t *testing.T) {
	t.Parallel()
	w := open(t, true)
	w.payout("r", "a", 901)
	w.claim("p", 33)
	w.advance("p", 33, account.Claimed, account.RailSubmitted)
	w.claim("r", 34)
	w.advance("r", 34, account.Claimed, account.Abandoned)
}
