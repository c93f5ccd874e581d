package account_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/fencelock/fencelock/apps/payments/internal/account"
	"github.com/fencelock/fencelock/apps/payments/internal/refusal"
	"github.com/fencelock/fencelock/core/lock"
)

func TestAPayoutAdvances(t *testing.T) {
	t.Parallel()
	w := open(t, true)
	w.claim("p", 33)
	w.advance("p", 33, account.Claimed, account.RailSubmitted)
	p, err := w.Advance(t.Context(), ref("p"), 33, account.Step{From: account.RailSubmitted, To: account.RailAmbiguous, Reason: "no answer"})
	if err != nil || p.State != account.RailAmbiguous || p.Reason != "no answer" || p.Token != 33 {
		t.Errorf("ambiguous: %+v, %v", p, err)
	}
	w.claim("p", 34)
	p, err = w.Advance(t.Context(), ref("p"), 34, account.Step{From: account.RailAmbiguous, To: account.RailAcked, RailReference: "t-9"})
	if err != nil || p.State != account.RailAcked || p.Reason != "" || p.RailReference != "t-9" || p.Token != 34 {
		t.Errorf("acked: %+v, %v", p, err)
	}
	if got := w.get("p").Payout; got != p {
		t.Errorf("it reads %+v, was answered %+v", got, p)
	}
}

func TestAnAdvanceNeedsTheTokenThatHasClaimed(t *testing.T) {
	t.Parallel()
	w := open(t, true)
	go1 := step(account.Claimed, account.RailSubmitted)
	w.unchanged("an advance before any claim", func() {
		_, err := w.Advance(t.Context(), ref("p"), 33, go1)
		fencedOut(t, "before any claim", err)
	})
	w.claim("p", 33)
	w.claim("p", 35)
	w.unchanged("an advance by another token", func() {
		for _, token := range []lock.Token{33, 34, 36} {
			_, err := w.Advance(t.Context(), ref("p"), token, go1)
			fencedOut(t, "by another token", err)
		}
	})
	w.advance("p", 35, account.Claimed, account.RailSubmitted)
}

func TestAnAdvanceFromAnotherStateIsRefused(t *testing.T) {
	t.Parallel()
	w := open(t, true)
	w.claim("p", 33)
	w.unchanged("an advance from a state where the payout is not", func() {
		_, err := w.Advance(t.Context(), ref("p"), 33, step(account.RailSubmitted, account.RailAcked))
		refused(t, "too early", err, refusal.WrongState, account.Claimed)
	})
	w.advance("p", 33, account.Claimed, account.Abandoned)
	w.unchanged("an advance of what is over", func() {
		_, err := w.Advance(t.Context(), ref("p"), 33, step(account.Claimed, account.RailSubmitted))
		refused(t, "too late", err, refusal.WrongState, account.Abandoned)
	})
	w.unchanged("an advance of a payout that this grant has not claimed", func() {
		_, err := w.Advance(t.Context(), ref("q"), 33, step(account.Claimed, account.RailSubmitted))
		refused(t, "not claimed", err, refusal.WrongState, account.Pending)
	})
}

// TestAGrantAdvancesWhatItHasClaimedOnly: an earlier holder left q claimed; the grant of p may not go on with it.
func TestAGrantAdvancesWhatItHasClaimedOnly(t *testing.T) {
	t.Parallel()
	w := open(t, true)
	w.claim("q", 32)
	w.claim("p", 33)
	w.unchanged("a step of what the grant has not claimed", func() {
		_, err := w.Advance(t.Context(), ref("q"), 33, step(account.Claimed, account.RailSubmitted))
		refused(t, "advance", err, refusal.WrongState, account.Claimed)
	})
	w.acked("q", 34)
	w.claim("p", 35)
	w.unchanged("a posting of what the grant has not claimed", func() {
		_, err := w.Post(t.Context(), ref("q"), 35, 950)
		refused(t, "post", err, refusal.WrongState, account.RailAcked)
	})
	w.claim("q", 36)
	w.post("q", 36, 950)
}

func TestAnAdvanceWhoseAnswerWasLostIsAnsweredAgain(t *testing.T) {
	t.Parallel()
	w := open(t, true)
	w.claim("p", 33)
	first := w.advance("p", 33, account.Claimed, account.RailSubmitted)
	w.unchanged("the repetition", func() {
		if again := w.advance("p", 33, account.Claimed, account.RailSubmitted); again != first {
			t.Errorf("first %+v, then %+v", first, again)
		}
	})
	w.advance("p", 33, account.RailSubmitted, account.RailAcked)
	w.unchanged("the repetition with other values", func() {
		other := account.Step{From: account.RailSubmitted, To: account.RailAcked, RailReference: "t-2"}
		_, err := w.Advance(t.Context(), ref("p"), 33, other)
		refused(t, "another reference", err, refusal.Different, "")
		other = account.Step{From: account.RailSubmitted, To: account.RailAcked, RailReference: "t-1", Reason: "another"}
		_, err = w.Advance(t.Context(), ref("p"), 33, other)
		refused(t, "another reason", err, refusal.Different, "")
	})
}

// TestUnlistedTransitionsAreRefusedInBothModes tries all pairs of states, from every state in which the payout can be.
func TestUnlistedTransitionsAreRefusedInBothModes(t *testing.T) {
	t.Parallel()
	for _, fencing := range []bool{true, false} {
		w := open(t, fencing)
		w.claim("p", 33)
		w.unchanged("an unlisted transition", func() {
			for _, from := range append(account.States(), "", "UNHEARD") {
				for _, to := range append(account.States(), "", "UNHEARD") {
					if account.Listed(from, to, account.ByAdvance) {
						continue
					}
					_, err := w.Advance(t.Context(), ref("p"), 33, step(from, to))
					if e, ok := errors.AsType[*account.UnlistedError](err); !ok || e.From != from || e.To != to || lock.CodeOf(err) != lock.CodeInvalid {
						t.Errorf("fencing %t, %s to %s: %v", fencing, from, to, err)
					}
				}
			}
		})
	}
}

func TestAnAdvanceChecksItsWords(t *testing.T) {
	t.Parallel()
	w := open(t, true)
	w.claim("p", 33)
	w.advance("p", 33, account.Claimed, account.RailSubmitted)
	w.unchanged("words that cannot be", func() {
		acked := account.Step{From: account.RailSubmitted, To: account.RailAcked}
		_, err := w.Advance(t.Context(), ref("p"), 33, acked)
		invalid(t, "no reference", err, "rail_reference")
		for _, text := range []string{strings.Repeat("x", 65), "a\x00b", "a\nb", "a\u202eb", "a\u2028b", "a\xffb"} {
			acked.RailReference = text
			_, err := w.Advance(t.Context(), ref("p"), 33, acked)
			invalid(t, "reference", err, "rail_reference")
		}
		_, err = w.Advance(t.Context(), ref("p"), 33,
			account.Step{From: account.RailSubmitted, To: account.Failed, Reason: strings.Repeat("x", 257)})
		invalid(t, "a long reason", err, "reason")
	})
	_, err := w.Advance(t.Context(), ref("p"), 33,
		account.Step{From: account.RailSubmitted, To: account.Failed, Reason: strings.Repeat("ä", 256)})
	if err != nil {
		t.Errorf("the longest reason: %v", err)
	}
}
