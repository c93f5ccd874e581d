package account_test

import (
	"errors"
	"math"
	"strings"
	"sync"
	"testing"

	"github.com/fencelock/fencelock/apps/payments/internal/account"
	"github.com/fencelock/fencelock/apps/payments/internal/refusal"
)

func TestAccountsAndPayoutsAreMadeOnce(t *testing.T) {
	t.Parallel()
	w := open(t, true)
	w.account("b", 1)
	w.acked("p", 33)
	w.post("p", 33, 900)
	w.unchanged("asking again", func() {
		if a, err := w.OpenAccount(t.Context(), "a", 1000); err != nil || a.Balance != 900 || a.Fence != 33 {
			t.Errorf("open again: %+v, %v", a, err)
		}
		p, err := w.CreatePayout(t.Context(), account.NewPayout{ID: "p", Account: "a", Amount: 100, Destination: "elsewhere"})
		if err != nil || p != w.get("p").Payout {
			t.Errorf("create again: %+v, %v", p, err)
		}
		_, err = w.OpenAccount(t.Context(), "a", 999)
		refused(t, "another balance", err, refusal.Different, "")
		for _, other := range []account.NewPayout{
			{ID: "p", Account: "a", Amount: 101, Destination: "elsewhere"}, {ID: "p", Account: "a", Amount: 100, Destination: "there"},
			{ID: "p", Account: "b", Amount: 100, Destination: "elsewhere"},
		} {
			_, err := w.CreatePayout(t.Context(), other)
			refused(t, text(other), err, refusal.Different, "")
		}
		_, err = w.CreatePayout(t.Context(), account.NewPayout{ID: "x", Account: "nobody", Amount: 1, Destination: "d"})
		refused(t, "no account", err, refusal.NotFound, "")
		_, err = w.GetPayout(t.Context(), "x")
		refused(t, "no payout", err, refusal.NotFound, "")
	})
}

func TestTheSameAskedForAtOnceIsMadeOnce(t *testing.T) {
	t.Parallel()
	w := open(t, true)
	stores := []*account.Store{w.Store, w.another(true)}
	var wg sync.WaitGroup
	errs := make([]error, 8)
	for i := range errs {
		wg.Go(func() {
			store := stores[i%2]
			_, err := store.OpenAccount(t.Context(), "b", 5)
			_, err2 := store.CreatePayout(t.Context(), account.NewPayout{ID: "r", Account: "b", Amount: 5, Destination: "d"})
			errs[i] = errors.Join(err, err2)
		})
	}
	wg.Wait()
	if err := errors.Join(errs...); err != nil {
		t.Error(err)
	}
	if n := len(w.events()); n != 3 {
		t.Errorf("%d events of three creations", n)
	}
}

func TestWhatIsAskedForHasBounds(t *testing.T) {
	t.Parallel()
	w := open(t, true)
	ids := []string{"", strings.Repeat("x", 65), strings.Repeat("x", 1<<20), "a b", "a/b", "ä", "a\x00", "a\n", "a'b", "a%b"}
	for _, id := range ids {
		_, err := w.OpenAccount(t.Context(), id, 1)
		invalid(t, "account "+id, err, "id")
		_, err = w.CreatePayout(t.Context(), account.NewPayout{ID: id, Account: "a", Amount: 1, Destination: "d"})
		invalid(t, "payout "+id, err, "id")
		_, err = w.CreatePayout(t.Context(), account.NewPayout{ID: "x", Account: id, Amount: 1, Destination: "d"})
		invalid(t, "payout of "+id, err, "account")
		_, err = w.GetPayout(t.Context(), id)
		invalid(t, "get "+id, err, "id")
	}
	_, err := w.OpenAccount(t.Context(), account.Rail, 1)
	invalid(t, "the rail's name", err, "id")
	for _, money := range []int64{-1, math.MinInt64, 1_000_000_000_001, math.MaxInt64} {
		_, err := w.OpenAccount(t.Context(), "x", money)
		invalid(t, "balance", err, "balance")
	}
	for _, money := range []int64{0, -1, math.MinInt64, 1_000_000_000_001, math.MaxInt64} {
		_, err := w.CreatePayout(t.Context(), account.NewPayout{ID: "x", Account: "a", Amount: money, Destination: "d"})
		invalid(t, "amount", err, "amount")
	}
	for _, to := range []string{"", strings.Repeat("ä", 65), "a\x00b", "a\u202eb"} {
		_, err := w.CreatePayout(t.Context(), account.NewPayout{ID: "x", Account: "a", Amount: 1, Destination: to})
		invalid(t, "destination", err, "destination")
	}
	longest := account.NewPayout{ID: strings.Repeat("x", 64), Account: "a", Amount: 1_000_000_000_000, Destination: strings.Repeat("ä", 64)}
	if _, err := w.CreatePayout(t.Context(), longest); err != nil {
		t.Errorf("the longest: %v", err)
	}
	if _, err := w.OpenAccount(t.Context(), "Az09._:-", 1_000_000_000_000); err != nil {
		t.Errorf("all characters: %v", err)
	}
}

func TestPayoutsAreListedOldestFirstInPages(t *testing.T) {
	t.Parallel()
	w := open(t, true)
	for _, id := range []string{"z", "c", "m"} {
		w.payout(id, "a", 1)
	}
	w.claim("c", 1)
	list := func(states []account.State, size int32) string {
		t.Helper()
		var ids []string
		for token, pages := "", 0; ; pages++ {
			page, next, err := w.ListPayouts(t.Context(), states, size, token)
			if err != nil || pages > 10 {
				t.Fatalf("page %d: %v", pages, err)
			}
			for _, p := range page {
				ids = append(ids, p.ID)
			}
			if token = next; token == "" {
				return strings.Join(ids, " ")
			}
		}
	}
	for _, size := range []int32{0, 1, 2, 5, 1000} {
		for want, states := range map[string][]account.State{
			"p q z c m": nil, "p q z m": {account.Pending}, "c": {account.Claimed}, "": {account.Posted}, "p q z c m ": {account.Pending, account.Claimed},
		} {
			if got := list(states, size); got != strings.TrimSpace(want) {
				t.Errorf("pages of %d of %v: %s", size, states, got)
			}
		}
	}
	for _, size := range []int32{-1, 1001, math.MinInt32} {
		_, _, err := w.ListPayouts(t.Context(), nil, size, "")
		invalid(t, "size", err, "page_size")
		_, _, err = w.ListEvents(t.Context(), size, "")
		invalid(t, "size", err, "page_size")
	}
	for _, token := range []string{"0", "-1", "x", "1x", "01", "9223372036854775808", "1' OR true --"} {
		_, _, err := w.ListPayouts(t.Context(), nil, 1, token)
		invalid(t, "token "+token, err, "page_token")
	}
	_, _, err := w.ListPayouts(t.Context(), []account.State{"UNHEARD"}, 1, "")
	invalid(t, "a state", err, "states")
}
