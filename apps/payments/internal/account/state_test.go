package account_test

import (
	"slices"
	"testing"

	"github.com/fencelock/fencelock/apps/payments/internal/account"
)

// TestTransitions has the list once more, in other words: what follows each state.
func TestTransitions(t *testing.T) {
	t.Parallel()
	follow := map[account.State][]account.State{
		account.Pending:       {account.Claimed},
		account.Claimed:       {account.RailSubmitted, account.Abandoned},
		account.RailSubmitted: {account.RailAcked, account.Failed, account.RailAmbiguous},
		account.RailAmbiguous: {account.RailAcked, account.Failed},
		account.RailAcked:     {account.Posted},
	}
	writes := []account.Write{account.ByClaim, account.ByAdvance, account.ByPost}
	listed := 0
	for _, from := range account.States() {
		if from.Terminal() != (follow[from] == nil) {
			t.Errorf("%s: terminal is %t", from, from.Terminal())
		}
		for _, to := range account.States() {
			ways := 0
			for _, by := range writes {
				if account.Listed(from, to, by) {
					ways++
				}
			}
			if want := slices.Contains(follow[from], to); (ways == 1) != want || ways > 1 {
				t.Errorf("%s to %s: %d writes take it there, listed %t", from, to, ways, want)
			}
			listed += ways
		}
	}
	if listed != len(account.Transitions()) {
		t.Errorf("%d transitions, %d of them between states", len(account.Transitions()), listed)
	}
}
