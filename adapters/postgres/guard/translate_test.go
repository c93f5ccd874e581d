package guard_test

import (
	"context"
	"errors"
	"runtime"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/fencelock/fencelock/adapters/postgres/guard"
	"github.com/fencelock/fencelock/core/fence"
	"github.com/fencelock/fencelock/core/lock"
	"github.com/fencelock/fencelock/tools/testenv"
)

// expect compares the code of an error, whether its outcome is open, and that the driver's error is still in reach.
func expect(t *testing.T, what string, err, want error, unknown bool) {
	t.Helper()
	if !errors.Is(err, want) || lock.IsAmbiguous(err) != unknown {
		t.Errorf("%s: got %v (ambiguous %v), want %v (%v)", what, err, lock.IsAmbiguous(err), want, unknown)
	}
}

func TestErrorsAreOfTheClosedSet(t *testing.T) {
	t.Parallel()
	p, s := newPlace(t), shapes()[0]
	inside := func(marks *guard.Marks, resource string, before ...string) error {
		tx := p.begin(t, pgx.ReadCommitted)
		for _, sql := range before {
			_, _ = tx.Exec(t.Context(), sql) // may fail: then the transaction has
		}
		_, err := marks.In(tx).Advance(t.Context(), resource, 1<<40, fence.NotBelow)
		_ = tx.Rollback(t.Context())
		return err
	}
	missing := guard.NewTable(pgx.Identifier{"nowhere"})
	expect(t, "no table", inside(missing, "a"), lock.ErrContention, false)
	_, err := missing.Apart(p.pool).Advance(t.Context(), "a", 1, fence.Above)
	expect(t, "no table, apart", err, lock.ErrContention, false)
	expect(t, "a transaction that only reads", inside(s.marks, "a", "SET TRANSACTION READ ONLY"), lock.ErrNotLeader, false)
	expect(t, "a transaction that has failed", inside(s.marks, "a", "SELECT 1/0"), lock.ErrContention, false)

	p.exec(t, "CREATE TABLE small (id text PRIMARY KEY, mark integer)")
	p.exec(t, "INSERT INTO small VALUES ('a', 0)")
	small := guard.NewColumn(guard.Column{Table: pgx.Identifier{"small"}, ID: "id", Mark: "mark"})
	err = inside(small, "a")
	expect(t, "a column that is too small", err, lock.ErrInvalid, false)
	if answer, ok := errors.AsType[*pgconn.PgError](err); !ok || answer.Code != "22003" {
		t.Errorf("the driver's error is out of reach: %v", err)
	}

	foreign := p.begin(t, pgx.ReadCommitted)
	admits(t, s.advance, foreign, "a", 5, fence.Above)
	expect(t, "a lock that is not given", inside(s.marks, "a", "SET LOCAL lock_timeout = '20ms'"), lock.ErrContention, false)
	expect(t, "a statement that takes long", inside(s.marks, "a", "SET LOCAL statement_timeout = '20ms'"), lock.ErrContention, false)

	closed := p.begin(t, pgx.ReadCommitted)
	_ = closed.Rollback(t.Context())
	_, err = s.advance(t.Context(), closed, "a", 1, fence.Above)
	expect(t, "a transaction that is over", err, lock.ErrContention, false)
}

func TestTwoThatWaitForEachOtherAreToldToTryAgain(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	for _, s := range shapes()[:2] {
		one, two := p.begin(t, pgx.ReadCommitted), p.begin(t, pgx.ReadCommitted)
		admits(t, s.advance, one, "a", 1, fence.Above)
		admits(t, s.advance, two, "b", 1, fence.Above)
		ends := make(chan answer, 2)
		for tx, resource := range map[pgx.Tx]string{one: "b", two: "a"} {
			go func() {
				a := <-ask(t.Context(), s.advance, tx, resource, 2, fence.Above)
				_ = tx.Rollback(t.Context())
				ends <- a
			}()
		}
		given, kept := <-ends, <-ends
		if given.err == nil {
			given, kept = kept, given
		}
		expect(t, s.name, given.err, lock.ErrContention, false)
		if kept.err != nil || !kept.verdict.Admitted {
			t.Errorf("%s: the other one: %+v, %v", s.name, kept.verdict, kept.err)
		}
	}
}

// TestALostAnswerLeavesItOpenWhetherTheMarkWasRaised, but only apart: inside a transaction nothing is done before the commit.
func TestALostAnswerLeavesItOpenWhetherTheMarkWasRaised(t *testing.T) {
	t.Parallel()
	p, s := newPlace(t), shapes()[0]
	proxy := testenv.NewProxy(t, p.url)
	through := open(t, proxy.URL(), pgx.QueryExecModeExec)
	tx, err := through.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback(context.WithoutCancel(t.Context())) }()
	spare, err := through.Acquire(t.Context()) // a second connection that is there already
	if err != nil {
		t.Fatal(err)
	}
	spare.Release()

	proxy.HoldAnswers()
	apart := func(ctx context.Context, _ pgx.Tx, resource string, token lock.Token, rule fence.Rule) (fence.Verdict, error) {
		return s.marks.Apart(through).Advance(ctx, resource, token, rule)
	}
	ctx, cancel := context.WithCancel(t.Context())
	answers := ask(ctx, apart, nil, "a", 33, fence.Above)
	for p.markOf(t, s) != 33 {
		runtime.Gosched()
	}
	cancel()
	expect(t, "apart", (<-answers).err, lock.ErrContention, true)
	ctx, cancel = context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	_, err = s.advance(ctx, tx, "b", 33, fence.Above)
	expect(t, "inside a transaction", err, lock.ErrContention, false)
	proxy.Cut()

	// It was raised, so the same token is refused by the rule for first writes.
	v, err := s.marks.Apart(p.pool).Advance(t.Context(), "a", 33, fence.Above)
	if err != nil || v != (fence.Verdict{Highest: 33}) {
		t.Errorf("the mark is %+v, %v", v, err)
	}
	p.admitted(t, s.advance, "a", 33, fence.NotBelow)
	p.admitted(t, s.advance, "b", 33, fence.Above)

	_, err = s.marks.Apart(through).Advance(t.Context(), "a", 34, fence.Above)
	expect(t, "a database out of reach", err, lock.ErrContention, false)
}
