package account_test

import (
	"errors"
	"fmt"
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
		if l, err := w.GetLedger(t.Context(), id); err != nil || text(l) != want {
			t.Errorf("%s: %+v, %v", id, l, err)
		}
	}
	_, err := w.GetLedger(t.Context(), "nobody")
	refused(t, "no account", err, refusal.NotFound, "")
	_, err = w.GetLedger(t.Context(), "no body")
	invalid(t, "no id", err, "account")
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
