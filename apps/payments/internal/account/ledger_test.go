package account_test

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/fencelock/fencelock/apps/payments/internal/account"
	"github.com/fencelock/fencelock/apps/payments/internal/database"
	"github.com/fencelock/fencelock/apps/payments/internal/refusal"
	"github.com/fencelock/fencelock/core/lock"
	"github.com/fencelock/fencelock/tools/testenv"
)

// TestWhatIsWrittenStays: nobody changes or removes an entry or an event, whatever the statement.
func TestWhatIsWrittenStays(t *testing.T) {
	t.Parallel()
	w := open(t, true)
	w.acked("p", 33)
	w.post("p", 33, 900)
	conn := w.connect()
	w.unchanged("a change by hand", func() {
		for _, statement := range []string{
			"UPDATE payment.ledger_entry SET amount = 1", "DELETE FROM payment.ledger_entry", "TRUNCATE payment.ledger_entry",
			"UPDATE payment.payout_event SET token = 1", "DELETE FROM payment.payout_event", "TRUNCATE payment.payout_event",
			"UPDATE payment.ledger_entry SET amount = 1 WHERE payout = 'p'", "DELETE FROM payment.payout_event WHERE payout = 'q'",
			"TRUNCATE payment.payout CASCADE",
		} {
			_, err := conn.Exec(t.Context(), statement)
			if e, ok := errors.AsType[*pgconn.PgError](err); !ok || e.Code != "23000" {
				t.Errorf("%s: %v", statement, err)
			}
		}
	})
}

func TestTheHistoryHasEveryWrite(t *testing.T) {
	t.Parallel()
	w := open(t, true)
	w.acked("p", 33)
	w.post("p", 33, 900)
	w.claim("q", 40)
	w.advance("q", 40, account.Claimed, account.Abandoned)
	var got []string
	for _, e := range w.events() {
		if e.Account != "a" || e.At.IsZero() {
			t.Errorf("event %+v", e)
		}
		got = append(got, fmt.Sprintf("%s %s>%s %d %d", e.Payout, e.From, e.To, e.Token, e.Fence))
	}
	want := []string{
		"p >PENDING 0 0", "q >PENDING 0 0", "p PENDING>CLAIMED 33 0", "p CLAIMED>RAIL_SUBMITTED 33 33",
		"p RAIL_SUBMITTED>RAIL_ACKED 33 33", "p RAIL_ACKED>POSTED 33 33", "q PENDING>CLAIMED 40 33", "q CLAIMED>ABANDONED 40 40",
	}
	if text(got) != text(want) {
		t.Errorf("events\n%q, want\n%q", got, want)
	}
	page, next, err := w.ListEvents(t.Context(), 5, "")
	if err != nil || len(page) != 5 {
		t.Fatalf("a page of %d: %v", len(page), err)
	}
	rest, end, err := w.ListEvents(t.Context(), 5, next)
	if err != nil || len(rest) != 3 || end != "" || rest[0].To != account.Posted {
		t.Errorf("the rest is %+v, then %q, %v", rest, end, err)
	}
}

func TestTheLedgerOfOneAccount(t *testing.T) {
	t.Parallel()
	w := open(t, true)
	w.account("b", 70)
	w.payout("r", "b", 7)
	w.acked("p", 33)
	w.post("p", 33, 900)
	for id, want := range map[string]string{
		"a":          "{Accounts:[{Account:a Balance:900 Opening:1000 Entries:-100}] Groups:[{Payout:p Entries:2 Sum:0 Paid:100}]}",
		"b":          "{Accounts:[{Account:b Balance:70 Opening:70 Entries:0}] Groups:[]}",
		account.Rail: "{Accounts:[{Account:rail Balance:100 Opening:0 Entries:100}] Groups:[{Payout:p Entries:2 Sum:0 Paid:100}]}",
	} {
		if l, next, err := w.GetLedger(t.Context(), id, 0, ""); err != nil || next != "" || text(l) != want {
			t.Errorf("%s: %+v, %q, %v", id, l, next, err)
		}
	}
	_, _, err := w.GetLedger(t.Context(), "nobody", 0, "")
	refused(t, "no account", err, refusal.NotFound, "")
	_, _, err = w.GetLedger(t.Context(), "no body", 0, "")
	invalid(t, "no id", err, "account")
}

// TestTheLedgerInPages: pages of any size, put together, are the whole, accounts and then payouts in the order of their ids, and none is
// larger than it was asked for. What is opened and posted between pages moves nothing out of them.
func TestTheLedgerInPages(t *testing.T) {
	t.Parallel()
	w := open(t, true)
	token := lock.Token(10)
	for _, id := range []string{"z", "A", "rail2", "b"} { // "rail" stands between them
		w.account(id, 5)
	}
	post := func(id string) {
		w.payout(id, "a", 1)
		token++
		v := w.acked(id, token)
		w.post(id, token, v.Account.Balance-1)
	}
	for _, id := range []string{"x", "B", "n"} {
		post(id)
	}
	all := w.ledger()
	if len(all.Accounts) != 6 || len(all.Groups) != 3 {
		t.Fatalf("ledger %+v", all)
	}
	for size := int32(1); size <= 10; size++ {
		for _, id := range []string{"", "a", "b", account.Rail} {
			var whole account.Ledger
			pages := 0
			for token := ""; token != "" || pages == 0; pages++ {
				l, next, err := w.GetLedger(t.Context(), id, size, token)
				if err != nil || len(l.Accounts)+len(l.Groups) > int(size) {
					t.Fatalf("%q, page of %d behind %q: %+v, %v", id, size, token, l, err)
				}
				whole.Accounts = append(whole.Accounts, l.Accounts...)
				whole.Groups = append(whole.Groups, l.Groups...)
				token = next
			}
			want, _, err := w.GetLedger(t.Context(), id, 1000, "")
			if err != nil || text(whole) != text(want) {
				t.Errorf("%q in pages of %d: %+v, want %+v, %v", id, size, whole, want, err)
			}
		}
	}
	var seen []string
	for page, token := 0, ""; token != "" || page == 0; page++ {
		l, next, err := w.GetLedger(t.Context(), "", 2, token)
		if err != nil {
			t.Fatal(err)
		}
		for _, g := range l.Groups {
			seen = append(seen, g.Payout)
		}
		post(fmt.Sprint([]string{"A", "o"}[page%2], page)) // before and behind the place
		token = next
	}
	for _, id := range []string{"B", "n", "x"} {
		if n := len(slices.DeleteFunc(slices.Clone(seen), func(s string) bool { return s != id })); n != 1 {
			t.Errorf("%s is in %d pages: %q", id, n, seen)
		}
	}
}

func TestAPageOfTheLedgerThatCannotBe(t *testing.T) {
	t.Parallel()
	w := open(t, true)
	for _, token := range []string{"7", "/", "account/", "payout/", "payout/no body", "group/p", "account/a/b"} {
		_, _, err := w.GetLedger(t.Context(), "", 0, token)
		invalid(t, token, err, "page_token")
	}
	for _, size := range []int32{-1, 1001} {
		_, _, err := w.GetLedger(t.Context(), "", size, "")
		invalid(t, "size", err, "page_size")
	}
}

// TestWithFencingOffAStalePostCorruptsTheLedger is the harm that fencing prevents: two executors, the first of which was paused.
func TestWithFencingOffAStalePostCorruptsTheLedger(t *testing.T) {
	t.Parallel()
	w := open(t, false)
	stale := w.claim("p", 33)
	w.advance("p", 33, account.Claimed, account.RailSubmitted)
	// It is paused here, and another one is granted the lock and finishes.
	w.claim("p", 34)
	w.advance("p", 34, account.RailSubmitted, account.RailAcked)
	w.post("p", 34, 900)
	w.acked("q", 35)
	w.post("q", 35, 850)
	// It wakes up.
	w.advance("p", 33, account.RailSubmitted, account.RailAcked)
	w.post("p", 33, stale.Account.Balance-100)

	l := w.ledger()
	if g := l.Groups[0]; g != (account.Group{Payout: "p", Entries: 4, Sum: 0, Paid: 200}) {
		t.Errorf("group %+v", g)
	}
	if a := l.Accounts[0]; a != (account.Sum{Account: "a", Balance: 900, Opening: 1000, Entries: -250}) {
		t.Errorf("account %+v", a)
	}
	if v := w.get("p"); v.Account.Fence != 35 || v.Payout.Token != 33 {
		t.Errorf("noted %+v", v)
	}
	// The same with fencing on is refused at each step.
	on := w.another(true)
	_, err := on.Claim(t.Context(), ref("p"), 33)
	fencedOut(t, "claim", err)
	_, err = on.Advance(t.Context(), ref("p"), 33, step(account.RailSubmitted, account.RailAcked))
	fencedOut(t, "advance", err)
	_, err = on.Post(t.Context(), ref("p"), 33, 900)
	fencedOut(t, "post", err)
}

func TestWithFencingOffABalanceIsWrittenAsGiven(t *testing.T) {
	t.Parallel()
	w := open(t, false)
	w.claim("p", 5)
	if v := w.claim("p", 1); v.Payout.Claim != 1 || v.Account.Fence != 5 {
		t.Errorf("a stale claim: %+v", v)
	}
	if v := w.post("p", 1, -5); v.Account.Balance != -5 || v.Payout.State != account.Posted {
		t.Errorf("posted %+v", v)
	}
	_, err := w.Claim(t.Context(), ref("p"), 2)
	refused(t, "a claim of what is over", err, refusal.WrongState, account.Posted)
}

// TestManyProcessesStartAtOnce: each migrates, and finds the tables made.
func TestManyProcessesStartAtOnce(t *testing.T) {
	t.Parallel()
	url := testenv.Postgres(t).Database(t)
	var wg sync.WaitGroup
	for range 6 {
		wg.Go(func() {
			db, err := database.Open(t.Context(), url, "test")
			if err != nil {
				t.Error(err)
				return
			}
			defer db.Close()
			if err := account.Migrate(t.Context(), db); err != nil {
				t.Error(err)
				return
			}
			if _, err := account.New(db, true).OpenAccount(t.Context(), "a", 1); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
}

// TestADatabaseThatIsAway: errors may be tried again, and the store is there again with the database.
func TestADatabaseThatIsAway(t *testing.T) {
	t.Parallel()
	network := testenv.NewProxy(t, testenv.Postgres(t).Database(t))
	w := &world{t: t, url: network.URL()}
	w.Store = w.another(true)
	w.account("a", 1000)
	w.payout("p", "a", 1)
	network.Cut()
	if _, err := w.Claim(t.Context(), ref("p"), 1); !errors.Is(err, lock.ErrContention) || !lock.IsRetryable(err) {
		t.Errorf("claim: %v", err)
	}
	if _, err := w.GetPayout(t.Context(), "p"); !errors.Is(err, lock.ErrContention) || lock.IsAmbiguous(err) {
		t.Errorf("get: %v", err)
	}
	network.Heal()
	for {
		_, err := w.Claim(t.Context(), ref("p"), 1)
		if err == nil {
			break
		}
		if !lock.IsRetryable(err) {
			t.Fatal(err)
		}
	}
}

// TestTheLedgerOfOneAccountReadsNoOther: else the time that a call may take is over before its answer, in a large ledger.
func TestTheLedgerOfOneAccountReadsNoOther(t *testing.T) {
	t.Parallel()
	w := open(t, true)
	w.acked("p", 33)
	w.post("p", 33, 900)
	conn := w.connect()
	for _, statement := range []string{
		`INSERT INTO payment.payout (id, account, amount, destination) SELECT 'x' || n, 'a', 1, 'd' FROM generate_series(1, 20000) n`,
		`INSERT INTO payment.ledger_entry (payout, account, amount, token)
			SELECT 'x' || n, unnest(ARRAY['b' || n % 200, '` + account.Rail + `']), 1, 1 FROM generate_series(1, 20000) n`,
		`ANALYZE payment.ledger_entry`,
	} {
		if _, err := conn.Exec(t.Context(), statement); err != nil {
			t.Fatal(err)
		}
	}
	read := func() (byIndex, all int64) {
		t.Helper()
		const reads = `SELECT idx_scan, seq_tup_read + idx_tup_fetch FROM pg_stat_user_tables WHERE schemaname = 'payment' AND relname = 'ledger_entry'`
		if err := conn.QueryRow(t.Context(), reads).Scan(&byIndex, &all); err != nil {
			t.Fatal(err)
		}
		return byIndex, all
	}
	settled, before := read()
	for calls := int64(1); ; calls++ {
		if l, _, err := w.GetLedger(t.Context(), "a", 10, ""); err != nil || len(l.Groups) != 1 {
			t.Fatalf("%+v, %v", l, err)
		}
		byIndex, all := read()
		if byIndex <= settled+100 && all-before < 20000 {
			continue // what was counted shows a moment later
		}
		if each := (all - before) / calls; each > 100 {
			t.Errorf("each call has read %d entries", each)
		}
		return
	}
}
