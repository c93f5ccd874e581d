package account_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/fencelock/fencelock/apps/payments/internal/account"
	"github.com/fencelock/fencelock/apps/payments/internal/refusal"
	"github.com/fencelock/fencelock/core/lock"
)

func TestAClaimRaisesTheFence(t *testing.T) {
	t.Parallel()
	w := open(t, true)
	v := w.claim("p", 33)
	if v.Account.Fence != 33 || v.Account.Balance != 1000 {
		t.Errorf("account %+v", v.Account)
	}
	if p := v.Payout; p.State != account.Claimed || p.Token != 33 || p.Claim != 33 || p.ChangedAt.Before(p.CreatedAt) {
		t.Errorf("payout %+v", p)
	}
	if got := w.get("p"); got != v {
		t.Errorf("it reads %+v, was answered %+v", got, v)
	}
}

func TestAStaleClaimIsFencedOutAndChangesNothing(t *testing.T) {
	t.Parallel()
	w := open(t, true)
	w.claim("p", 33)
	w.unchanged("a stale claim", func() {
		for _, payout := range []string{"p", "q"} {
			_, err := w.Claim(t.Context(), ref(payout), 32)
			fencedOut(t, payout, err)
		}
		// Of another payout, by the same grant: one payout per grant.
		_, err := w.Claim(t.Context(), ref("q"), 33)
		fencedOut(t, "a second payout", err)
	})
}

func TestAClaimWhoseAnswerWasLostIsAnsweredAgain(t *testing.T) {
	t.Parallel()
	w := open(t, true)
	first := w.claim("p", 33)
	w.unchanged("the repetition", func() {
		if again := w.claim("p", 33); again != first {
			t.Errorf("first %+v, then %+v", first, again)
		}
	})
	w.claim("q", 34)
	_, err := w.Claim(t.Context(), ref("p"), 33)
	fencedOut(t, "the repetition after a newer grant", err)
}

func TestAClaimOfWhatAnEarlierHolderLeftKeepsItsState(t *testing.T) {
	t.Parallel()
	w := open(t, true)
	w.claim("p", 33)
	before := w.advance("p", 33, account.Claimed, account.RailSubmitted)
	v := w.claim("p", 35)
	if p := v.Payout; p.State != account.RailSubmitted || p.Token != 33 || p.Claim != 35 || p.ChangedAt != before.ChangedAt {
		t.Errorf("payout %+v", p)
	}
	last := w.events()[len(w.events())-1]
	want := account.Event{
		Number: last.Number, Payout: "p", Account: "a", From: account.RailSubmitted, To: account.RailSubmitted, Token: 35, Fence: 33, At: last.At,
	}
	if last != want {
		t.Errorf("event %+v, want %+v", last, want)
	}
}

func TestAPayoutThatIsOverIsNotClaimed(t *testing.T) {
	t.Parallel()
	w := open(t, true)
	w.claim("p", 33)
	w.advance("p", 33, account.Claimed, account.Abandoned)
	w.unchanged("a claim of an abandoned payout", func() {
		_, err := w.Claim(t.Context(), ref("p"), 34)
		refused(t, "claim", err, refusal.WrongState, account.Abandoned)
	})
}

func TestThePayoutOfAnotherAccountIsNotThere(t *testing.T) {
	t.Parallel()
	for _, fencing := range []bool{true, false} {
		w := open(t, fencing)
		w.account("b", 10)
		w.unchanged("a write under the lock of another account", func() {
			r := account.Ref{Payout: "p", Account: "b"}
			_, err := w.Claim(t.Context(), r, 99)
			refused(t, "claim", err, refusal.NotFound, "")
			_, err = w.Advance(t.Context(), r, 99, step(account.Claimed, account.RailSubmitted))
			refused(t, "advance", err, refusal.NotFound, "")
			_, err = w.Post(t.Context(), r, 99, 0)
			refused(t, "post", err, refusal.NotFound, "")
		})
		for _, r := range []account.Ref{{"nothing", "a"}, {"p", "nobody"}} {
			_, err := w.Claim(t.Context(), r, 99)
			refused(t, fmt.Sprint(r), err, refusal.NotFound, "")
		}
	}
}

func TestWritesWithoutSenseAreInvalid(t *testing.T) {
	t.Parallel()
	w := open(t, true)
	for _, token := range []lock.Token{0, -1, math.MinInt64} {
		_, err := w.Claim(t.Context(), ref("p"), token)
		invalid(t, "claim", err, "token")
		_, err = w.Advance(t.Context(), ref("p"), token, step(account.Claimed, account.RailSubmitted))
		invalid(t, "advance", err, "token")
		_, err = w.Post(t.Context(), ref("p"), token, 0)
		invalid(t, "post", err, "token")
	}
	_, err := w.Claim(t.Context(), account.Ref{Payout: "p p", Account: "a"}, 1)
	invalid(t, "claim", err, "id")
	_, err = w.Claim(t.Context(), account.Ref{Payout: "p", Account: ""}, 1)
	invalid(t, "claim", err, "account")
}

func TestTheHighestTokenClaims(t *testing.T) {
	t.Parallel()
	w := open(t, true)
	w.claim("p", math.MaxInt64)
	_, err := w.Claim(t.Context(), ref("q"), math.MaxInt64-1)
	fencedOut(t, "all others", err)
}

// TestTwoClaimsAtOnce: in whichever order they come, the fence never goes back.
func TestTwoClaimsAtOnce(t *testing.T) {
	t.Parallel()
	w := open(t, true)
	stores := []*account.Store{w.Store, w.another(true), w.another(true)}
	const rounds, each = 10, 6
	for round := range lock.Token(rounds) {
		var wg sync.WaitGroup
		errs := make([]error, each)
		for i := range lock.Token(each) {
			wg.Go(func() {
				_, errs[i] = stores[int(i)%len(stores)].Claim(t.Context(), ref("p"), 1+round*each+i)
			})
		}
		wg.Wait()
		if errs[each-1] != nil {
			t.Errorf("the highest of round %d: %v", round, errs[each-1])
		}
		for _, err := range errs[:each-1] {
			if err != nil {
				fencedOut(t, "a lower one", err)
			}
		}
	}
	last := lock.Token(0)
	for _, e := range w.events() {
		if e.From == "" {
			continue
		}
		if e.Fence != last || e.Token <= e.Fence {
			t.Errorf("after %d came %+v", last, e)
		}
		last = e.Token
	}
	if last != rounds*each {
		t.Errorf("the last claim was by %d", last)
	}
}

// TestTheSameClaimTwiceAtOnce: a request that the network doubled.
func TestTheSameClaimTwiceAtOnce(t *testing.T) {
	t.Parallel()
	w := open(t, true)
	other := w.another(true)
	var wg sync.WaitGroup
	errs := make([]error, 4)
	for i := range errs {
		store := w.Store
		if i%2 == 1 {
			store = other
		}
		wg.Go(func() { _, errs[i] = store.Claim(t.Context(), ref("p"), 7) })
	}
	wg.Wait()
	if err := errors.Join(errs...); err != nil {
		t.Error(err)
	}
	if n := len(w.events()); n != 3 {
		t.Errorf("%d events, want two of creation and one claim", n)
	}
}

// TestAClaimWaitsForTheRow: a foreign transaction holds the account's row.
func TestAClaimWaitsForTheRow(t *testing.T) {
	t.Parallel()
	w := open(t, true)
	w.account("b", 1000)
	w.payout("r", "b", 10)
	tx := w.holdRow()

	// Who gives up in time gets an error that may be tried again.
	brief, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := w.Claim(brief, ref("p"), 5); !errors.Is(err, lock.ErrContention) || lock.IsAmbiguous(err) {
		t.Errorf("at its deadline a claim gets %v", err)
	}

	// Many who wait take nothing away from other accounts.
	waiting := make(chan error, 40)
	for range cap(waiting) {
		go func() {
			_, err := w.Claim(t.Context(), ref("p"), 6)
			waiting <- err
		}()
	}
	w.awaitLock()
	if _, err := w.Claim(t.Context(), account.Ref{Payout: "r", Account: "b"}, 5); err != nil {
		t.Errorf("another account: %v", err)
	}
	w.payout("s", "a", 10) // and payouts can be asked for

	// The foreign transaction was a newer claim: those who waited see it.
	if _, err := tx.Exec(t.Context(), "UPDATE payment.account SET fence = 7 WHERE id = 'a'"); err != nil {
		t.Fatal(err)
	}
	if err := tx.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	for range cap(waiting) {
		fencedOut(t, "after the wait", <-waiting)
	}
}

// holdRow begins a transaction that holds the row of the account "a" against other writers.
func (w *world) holdRow() pgx.Tx {
	w.t.Helper()
	tx, err := w.connect().Begin(w.t.Context())
	if err != nil {
		w.t.Fatal(err)
	}
	if _, err := tx.Exec(w.t.Context(), "SELECT FROM payment.account WHERE id = 'a' FOR NO KEY UPDATE"); err != nil {
		w.t.Fatal(err)
	}
	return tx
}

// awaitLock waits until somebody waits for a row.
func (w *world) awaitLock() {
	w.t.Helper()
	conn := w.connect()
	ctx, cancel := context.WithTimeout(w.t.Context(), eventually)
	defer cancel()
	for waiting := 0; waiting == 0; {
		err := conn.QueryRow(ctx, `SELECT count(*) FROM pg_stat_activity
			WHERE datname = current_database() AND wait_event_type = 'Lock'`).Scan(&waiting)
		if err != nil {
			w.t.Fatal(err)
		}
	}
}
