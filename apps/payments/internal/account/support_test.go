package account_test

import (
	"errors"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"go.uber.org/goleak"

	"github.com/fencelock/fencelock/apps/payments/internal/account"
	"github.com/fencelock/fencelock/apps/payments/internal/database"
	"github.com/fencelock/fencelock/apps/payments/internal/refusal"
	"github.com/fencelock/fencelock/core/lock"
	"github.com/fencelock/fencelock/tools/testenv"
)

// eventually is far more than anything takes, also on a busy machine.
const eventually = 60 * time.Second

func TestMain(m *testing.M) { goleak.VerifyTestMain(testenv.Main(m)) }

// world is a store in a database of its own.
type world struct {
	*account.Store

	t   *testing.T
	url string
}

// open returns a store with the account "a" of 1000, and its payouts "p" of 100 and "q" of 50.
func open(t *testing.T, fencing bool) *world {
	t.Helper()
	w := &world{t: t, url: testenv.Postgres(t).Database(t)}
	w.Store = w.another(fencing)
	w.account("a", 1000)
	w.payout("p", "a", 100)
	w.payout("q", "a", 50)
	return w
}

// another is a store of another process, in the same database.
func (w *world) another(fencing bool) *account.Store {
	w.t.Helper()
	db, err := database.Open(w.t.Context(), w.url, "test")
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(db.Close)
	if err := account.Migrate(w.t.Context(), db); err != nil {
		w.t.Fatal(err)
	}
	return account.New(db, fencing)
}

// connect is a connection of somebody else.
func (w *world) connect() *pgx.Conn {
	w.t.Helper()
	conn, err := pgx.Connect(w.t.Context(), w.url)
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { _ = conn.Close(w.t.Context()) })
	return conn
}

func (w *world) account(id string, opening int64) {
	w.t.Helper()
	if _, err := w.OpenAccount(w.t.Context(), id, opening); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) payout(id, of string, amount int64) {
	w.t.Helper()
	wanted := account.NewPayout{ID: id, Account: of, Amount: amount, Destination: "elsewhere"}
	if _, err := w.CreatePayout(w.t.Context(), wanted); err != nil {
		w.t.Fatal(err)
	}
}

// ref names a payout of the account "a".
func ref(payout string) account.Ref { return account.Ref{Payout: payout, Account: "a"} }

// claim claims a payout of "a".
func (w *world) claim(payout string, token lock.Token) account.View {
	w.t.Helper()
	v, err := w.Claim(w.t.Context(), ref(payout), token)
	if err != nil {
		w.t.Fatalf("claim %s by %d: %v", payout, token, err)
	}
	return v
}

// advance moves a payout of "a".
func (w *world) advance(payout string, token lock.Token, from, to account.State) account.Payout {
	w.t.Helper()
	p, err := w.Advance(w.t.Context(), ref(payout), token, step(from, to))
	if err != nil {
		w.t.Fatalf("advance %s by %d from %s to %s: %v", payout, token, from, to, err)
	}
	return p
}

// step has all that each step may need.
func step(from, to account.State) account.Step {
	return account.Step{From: from, To: to, RailReference: "t-1"}
}

// acked claims a payout of "a" and takes it to RAIL_ACKED.
func (w *world) acked(payout string, token lock.Token) account.View {
	w.t.Helper()
	v := w.claim(payout, token)
	w.advance(payout, token, account.Claimed, account.RailSubmitted)
	w.advance(payout, token, account.RailSubmitted, account.RailAcked)
	return v
}

// post posts a payout of "a".
func (w *world) post(payout string, token lock.Token, balance int64) account.View {
	w.t.Helper()
	v, err := w.Post(w.t.Context(), ref(payout), token, balance)
	if err != nil {
		w.t.Fatalf("post %s by %d: %v", payout, token, err)
	}
	return v
}

// get reads a payout and its account.
func (w *world) get(payout string) account.View {
	w.t.Helper()
	v, err := w.GetPayout(w.t.Context(), payout)
	if err != nil {
		w.t.Fatal(err)
	}
	return v
}

func (w *world) ledger() account.Ledger {
	w.t.Helper()
	l, next, err := w.GetLedger(w.t.Context(), "", 1000, "")
	if err != nil || next != "" {
		w.t.Fatalf("get ledger: %q, %v", next, err)
	}
	return l
}

func (w *world) events() []account.Event {
	w.t.Helper()
	events, next, err := w.ListEvents(w.t.Context(), 1000, "")
	if err != nil || next != "" {
		w.t.Fatalf("list events: %q, %v", next, err)
	}
	return events
}

// unchanged runs do and fails if it has written anything.
func (w *world) unchanged(what string, do func()) {
	w.t.Helper()
	type all struct {
		p, q    account.View
		ledger  string
		entries int
		events  int
	}
	look := func() all {
		l := w.ledger()
		return all{w.get("p"), w.get("q"), text(l), len(l.Groups), len(w.events())}
	}
	before := look()
	do()
	if after := look(); after != before {
		w.t.Errorf("%s has changed\n%+v to\n%+v", what, before, after)
	}
}

// fencedOut checks that err is a refusal by the fence, final for its caller.
func fencedOut(t *testing.T, what string, err error) {
	t.Helper()
	if !errors.Is(err, lock.ErrFencedOut) || lock.IsRetryable(err) {
		t.Errorf("%s: got %v, want fenced out", what, err)
	}
}

// refused checks that err is the refusal.
func refused(t *testing.T, what string, err error, want refusal.Code, state account.State) {
	t.Helper()
	if e, ok := errors.AsType[*refusal.Error](err); !ok || e.Code != want || e.State != string(state) {
		t.Errorf("%s: got %v, want %s %s", what, err, want, state)
	}
}

// invalid checks that err says which input cannot be.
func invalid(t *testing.T, what string, err error, field string) {
	t.Helper()
	if e, ok := errors.AsType[*lock.Error](err); !ok || e.Code != lock.CodeInvalid || e.Field != field {
		t.Errorf("%s: got %v, want an invalid %s", what, err, field)
	}
}
