package account_test

import (
	"fmt"
	"math"
	"sync"
	"testing"

	"github.com/fencelock/fencelock/apps/payments/internal/account"
	"github.com/fencelock/fencelock/apps/payments/internal/refusal"
	"github.com/fencelock/fencelock/core/lock"
)

func TestAPostingWritesTwoEntriesAndTheBalance(t *testing.T) {
	t.Parallel()
	w := open(t, true)
	w.acked("p", 33)
	v := w.post("p", 33, 900)
	if v.Account.Balance != 900 || v.Payout.State != account.Posted || v.Payout.Token != 33 || v.Payout.RailReference != "t-1" {
		t.Errorf("posted %+v", v)
	}
	if got := w.get("p"); got != v {
		t.Errorf("it reads %+v, was answered %+v", got, v)
	}
	want := account.Ledger{
		Accounts: []account.Sum{{"a", 900, 1000, -100}, {account.Rail, 100, 0, 100}},
		Groups:   []account.Group{{"p", 2, 0, 100}},
	}
	if got := w.ledger(); text(got) != text(want) {
		t.Errorf("ledger %+v, want %+v", got, want)
	}
}

func TestAStalePostIsFencedOut(t *testing.T) {
	t.Parallel()
	w := open(t, true)
	stale := w.acked("p", 33)
	w.claim("p", 34)
	w.unchanged("a stale post", func() {
		_, err := w.Post(t.Context(), ref("p"), 33, stale.Account.Balance-100)
		fencedOut(t, "before the newer one has posted", err)
	})
	w.post("p", 34, 900)
	w.unchanged("a stale post", func() {
		_, err := w.Post(t.Context(), ref("p"), 33, 900)
		fencedOut(t, "after the newer one has posted", err)
		_, err = w.Post(t.Context(), ref("p"), 35, 900)
		fencedOut(t, "by who has not claimed", err)
	})
}

func TestAPostWhoseAnswerWasLostWritesOnce(t *testing.T) {
	t.Parallel()
	w := open(t, true)
	w.acked("p", 33)
	var wg sync.WaitGroup
	for _, store := range []*account.Store{w.Store, w.another(true), w.Store} {
		wg.Go(func() {
			if v, err := store.Post(t.Context(), ref("p"), 33, 900); err != nil || v.Account.Balance != 900 {
				t.Errorf("post: %+v, %v", v, err)
			}
		})
	}
	wg.Wait()
	if groups := w.ledger().Groups; len(groups) != 1 || groups[0].Entries != 2 {
		t.Errorf("groups %+v", groups)
	}
	w.unchanged("the repetition with another balance", func() {
		_, err := w.Post(t.Context(), ref("p"), 33, 800)
		refused(t, "another balance", err, refusal.Different, "")
	})
}

func TestAPostNeedsAnAckedPayout(t *testing.T) {
	t.Parallel()
	w := open(t, true)
	post := func(want account.State) {
		w.unchanged("a post of a payout that is "+string(want), func() {
			_, err := w.Post(t.Context(), ref("p"), 33, 900)
			refused(t, "post", err, refusal.WrongState, want)
		})
	}
	w.claim("p", 33)
	post(account.Claimed)
	w.advance("p", 33, account.Claimed, account.RailSubmitted)
	post(account.RailSubmitted)
	w.advance("p", 33, account.RailSubmitted, account.RailAmbiguous)
	post(account.RailAmbiguous)
	w.advance("p", 33, account.RailAmbiguous, account.Failed)
	post(account.Failed)
}

// TestABalanceIsTheOneBeforeLessTheAmount: whoever gives another one has not computed it from what the claim showed.
func TestABalanceIsTheOneBeforeLessTheAmount(t *testing.T) {
	t.Parallel()
	w := open(t, true)
	w.acked("p", 33)
	w.unchanged("a posting with another balance", func() {
		for _, balance := range []int64{899, 901, 1000, 1100, 0, -1, -900, math.MinInt64, math.MaxInt64} {
			_, err := w.Post(t.Context(), ref("p"), 33, balance)
			refused(t, fmt.Sprint(balance), err, refusal.WrongBalance, "")
		}
	})
	w.post("p", 33, 900)
}

// TestAnOverdrawnAccountIsSettled: while fencing was off, the rail has taken more than there was. The ledger tells so.
func TestAnOverdrawnAccountIsSettled(t *testing.T) {
	t.Parallel()
	w := open(t, true)
	w.payout("r", "a", 950)
	off := &world{Store: w.another(false), t: t}
	off.acked("p", 33)
	off.acked("r", 34)
	w.claim("p", 35)
	w.post("p", 35, 900)
	w.claim("r", 36)
	if v := w.post("r", 36, -50); v.Account.Balance != -50 || v.Payout.State != account.Posted {
		t.Errorf("posted %+v", v)
	}
	if v := w.post("r", 36, -50); v.Account.Balance != -50 { // the answer was lost
		t.Errorf("posted again %+v", v)
	}
	if a := w.ledger().Accounts[0]; a != (account.Sum{Account: "a", Balance: -50, Opening: 1000, Entries: -1050}) {
		t.Errorf("account %+v", a)
	}
	w.claim("q", 37)
	w.unchanged("sending what the account has not", func() {
		_, err := w.Advance(t.Context(), ref("q"), 37, step(account.Claimed, account.RailSubmitted))
		refused(t, "advance", err, refusal.InsufficientFunds, "")
	})
	w.advance("q", 37, account.Claimed, account.Abandoned)
}

func TestTerminalStatesAreTerminal(t *testing.T) {
	t.Parallel()
	for _, end := range []account.State{account.Posted, account.Failed, account.Abandoned} {
		w := open(t, true)
		switch end {
		case account.Posted:
			w.acked("p", 33)
			w.post("p", 33, 900)
		case account.Abandoned:
			w.claim("p", 33)
			w.advance("p", 33, account.Claimed, end)
		default:
			w.claim("p", 33)
			w.advance("p", 33, account.Claimed, account.RailSubmitted)
			w.advance("p", 33, account.RailSubmitted, end)
		}
		w.unchanged("a write to a payout that is "+string(end), func() {
			for _, token := range []lock.Token{33, 34} {
				_, err := w.Claim(t.Context(), ref("p"), token)
				if token == 34 {
					refused(t, "claim", err, refusal.WrongState, end)
				}
				for _, s := range account.Transitions() {
					if s.By == account.ByAdvance && s.To != end {
						if _, err := w.Advance(t.Context(), ref("p"), token, step(s.From, s.To)); err == nil {
							t.Errorf("%s: advanced from %s to %s by %d", end, s.From, s.To, token)
						}
					}
				}
				if _, err := w.Post(t.Context(), ref("p"), token, 1); err == nil {
					t.Errorf("%s: posted by %d", end, token)
				}
			}
		})
	}
}
