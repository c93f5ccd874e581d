package guard_test

import (
	"context"
	"errors"
	"math"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/fencelock/fencelock/adapters/postgres/guard"
	"github.com/fencelock/fencelock/core/fence"
	"github.com/fencelock/fencelock/core/lock"
	"github.com/fencelock/fencelock/tools/testenv"
)

// step is one token that comes, and what becomes of it.
type step struct {
	rule     fence.Rule
	token    lock.Token
	admitted bool
}

// rules goes through both sides of every rule; the mark is 0 before.
func rules() []step {
	return []step{
		{fence.Equal, 1, false},
		{fence.Above, 33, true},
		{fence.Above, 33, false},
		{fence.Above, 32, false},
		{fence.Equal, 32, false},
		{fence.Equal, 33, true},
		{fence.Equal, 34, false},
		{fence.NotBelow, 32, false},
		{fence.NotBelow, 33, true},
		{fence.NotBelow, 34, true},
		{fence.Equal, 33, false},
		{fence.Equal, 34, true},
		{fence.Above, math.MaxInt64 - 1, true},
		{fence.NotBelow, math.MaxInt64, true},
		{fence.Equal, math.MaxInt64 - 1, false},
		{fence.Above, math.MaxInt64, false},
		{fence.Equal, math.MaxInt64, true},
	}
}

// goThrough asks for every step in a transaction of its own.
func (p *place) goThrough(t *testing.T, s shape, ask func(step) (fence.Verdict, error)) {
	t.Helper()
	highest := lock.Token(0)
	for _, st := range rules() {
		v, err := ask(st)
		if st.admitted {
			highest = st.token
		}
		if want := (fence.Verdict{Admitted: st.admitted, Highest: highest}); err != nil || v != want {
			t.Fatalf("%s: %d by %s: got %+v, %v, want %+v", s.name, st.token, st.rule, v, err, want)
		}
	}
}

func (p *place) inTransaction(t *testing.T, s shape) func(step) (fence.Verdict, error) {
	t.Helper()
	return func(st step) (v fence.Verdict, err error) {
		err = pgx.BeginFunc(t.Context(), p.pool, func(tx pgx.Tx) error {
			v, err = s.advance(t.Context(), tx, s.resource, st.token, st.rule)
			return err
		})
		return v, err
	}
}

func TestRulesOnBothSidesOfTheMark(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	for _, s := range shapes() {
		p.goThrough(t, s, p.inTransaction(t, s))
	}
}

// TestThroughATransactionPooler has one connection behind it for all, and modes of pgx that prepare nothing.
func TestThroughATransactionPooler(t *testing.T) {
	t.Parallel()
	for _, mode := range []pgx.QueryExecMode{pgx.QueryExecModeExec, pgx.QueryExecModeSimpleProtocol} {
		t.Run(mode.String(), func(t *testing.T) {
			t.Parallel()
			p := newPlace(t)
			p.pool = open(t, testenv.PgBouncer(t, p.url, "default_pool_size=1"), mode)
			for _, s := range shapes() {
				p.goThrough(t, s, p.inTransaction(t, s))
			}
		})
	}
}

func TestApartEachDecisionIsItsOwnTransaction(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	for _, s := range shapes() {
		p.goThrough(t, s, func(st step) (fence.Verdict, error) {
			return s.marks.Apart(p.pool).Advance(t.Context(), s.resource, st.token, st.rule)
		})
	}
}

func TestAMarkIsWrittenWithTheTransactionOrNotAtAll(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	for _, s := range shapes() {
		tx := p.begin(t, pgx.ReadCommitted)
		admits(t, s.advance, tx, s.resource, 40, fence.Above)
		admits(t, s.advance, tx, s.resource, 40, fence.Equal)
		if err := tx.Rollback(t.Context()); err != nil {
			t.Fatal(err)
		}
		p.admitted(t, s.advance, s.resource, 33, fence.Above)
	}
}

// TestAForeignTransactionThatGivesUpLetsTheWaiterIn: what waited is judged by what was committed.
func TestAForeignTransactionThatGivesUpLetsTheWaiterIn(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	for _, s := range shapes() {
		for _, rule := range []fence.Rule{fence.Above, fence.NotBelow} {
			foreign, ours := p.begin(t, pgx.ReadCommitted), p.begin(t, pgx.ReadCommitted)
			admits(t, s.advance, foreign, s.resource, 90, fence.Above)
			answers := ask(t.Context(), s.advance, ours, s.resource, 33, rule)
			if !p.waits(t, ours, answers) {
				t.Fatalf("%s: did not wait for the open transaction", s.name)
			}
			_ = foreign.Rollback(t.Context())
			if a := <-answers; a.err != nil || !a.verdict.Admitted {
				t.Errorf("%s: %+v, %v", s.name, a.verdict, a.err)
			}
			_ = ours.Rollback(t.Context())
		}
	}
}

// TestTheFirstOnesOfAResourceAgree: there is no row to lock yet, and the newer one's insertion is open.
func TestTheFirstOnesOfAResourceAgree(t *testing.T) {
	t.Parallel()
	p, s := newPlace(t), shapes()[0]
	for _, rule := range []fence.Rule{fence.Above, fence.NotBelow} {
		resource := "new by " + rule.String()
		newer, older := p.begin(t, pgx.ReadCommitted), p.begin(t, pgx.ReadCommitted)
		admits(t, s.advance, newer, resource, 34, rule)
		answers := ask(t.Context(), s.advance, older, resource, 33, rule)
		if !p.waits(t, older, answers) {
			t.Fatal("did not wait for the open transaction")
		}
		commit(t, newer)
		if a := <-answers; a.err != nil || a.verdict != (fence.Verdict{Highest: 34}) {
			t.Errorf("%s: %+v, %v", rule, a.verdict, a.err)
		}
	}
}

// TestHigherLevelsGiveARetryableError: the mark that was changed since the transaction began is not judged.
func TestHigherLevelsGiveARetryableError(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	for _, level := range []pgx.TxIsoLevel{pgx.RepeatableRead, pgx.Serializable} {
		for _, s := range shapes() {
			p.admitted(t, s.advance, s.resource, 1, fence.NotBelow)
			ours := p.begin(t, level)
			if _, err := ours.Exec(t.Context(), "SELECT FROM note"); err != nil { // takes the picture
				t.Fatal(err)
			}
			p.admitted(t, s.advance, s.resource, 1, fence.Equal)
			_, err := s.advance(t.Context(), ours, s.resource, 2, fence.Above)
			if !errors.Is(err, lock.ErrContention) || lock.IsAmbiguous(err) {
				t.Errorf("%s: %s: %v", level, s.name, err)
			}
		}
	}
}

// TestAMarkCanBeReset as docs/fencing.md says, after a made-up number has locked everyone out.
func TestAMarkCanBeReset(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	for _, s := range shapes() {
		p.admitted(t, s.advance, s.resource, math.MaxInt64, fence.Above)
		const granted = 50
		if _, err := p.pool.Exec(t.Context(), s.raise, s.resource, granted); err != nil {
			t.Fatal(err)
		}
		tx := p.begin(t, pgx.ReadCommitted)
		if v, err := s.advance(t.Context(), tx, s.resource, granted-1, fence.NotBelow); err != nil || v.Admitted {
			t.Errorf("%s: an older one: %+v, %v", s.name, v, err)
		}
		_ = tx.Rollback(t.Context())
		p.admitted(t, s.advance, s.resource, granted+1, fence.Above)
	}
}

func TestOneResourceSaysNothingAboutAnother(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	for _, s := range shapes()[:2] {
		tx := p.begin(t, pgx.ReadCommitted)
		admits(t, s.advance, tx, "a", 90, fence.Above)
		p.admitted(t, s.advance, "b", 1, fence.Above)
	}
}

func TestAResourceNeedsItsRow(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	p.exec(t, "CREATE TABLE twins (id text, mark bigint)")
	p.exec(t, "INSERT INTO twins VALUES ('a'), ('a')")
	twins := shape{name: "two rows", resource: "a", marks: guard.NewColumn(guard.Column{
		Table: pgx.Identifier{"twins"}, ID: "id", Mark: "mark",
	})}
	list := shapes()
	list[2].name, list[2].resource = "no number", "1; DROP TABLE account"
	list[3].name, list[3].resource = "another uuid", "00000000-0000-0000-0000-000000000002"
	for _, s := range append(list[2:], twins) {
		for _, rule := range []fence.Rule{fence.Above, fence.NotBelow, fence.Equal} {
			if s.name == twins.name && rule == fence.Equal {
				continue // neither has the mark
			}
			tx := p.begin(t, pgx.ReadCommitted)
			err := fence.New(s.marks.In(tx)).AdmitBy(t.Context(), rule, s.resource, 1)
			if !errors.Is(err, lock.ErrInvalid) {
				t.Errorf("%s by %s: %v", s.name, rule, err)
			}
			_ = tx.Rollback(t.Context())
		}
	}
	for _, bad := range []string{"", "a\x00", "\xff"} {
		if _, err := list[0].advance(t.Context(), nil, bad, 1, fence.Above); !errors.Is(err, lock.ErrInvalid) {
			t.Errorf("%q: %v", bad, err)
		}
	}
	if _, err := list[0].advance(t.Context(), nil, "a", 0, fence.Equal); !errors.Is(err, lock.ErrInvalid) {
		t.Errorf("token 0: %v", err)
	}
}

func TestAWaitHeedsTheContext(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	for _, s := range shapes() {
		foreign, ours := p.begin(t, pgx.ReadCommitted), p.begin(t, pgx.ReadCommitted)
		admits(t, s.advance, foreign, s.resource, 34, fence.Above)
		ctx, cancel := context.WithCancel(t.Context())
		answers := ask(ctx, s.advance, ours, s.resource, 35, fence.Above)
		if !p.waits(t, ours, answers) {
			t.Fatal("did not wait for the open transaction")
		}
		cancel()
		a := <-answers
		if !errors.Is(a.err, lock.ErrContention) || !errors.Is(a.err, context.Canceled) || lock.IsAmbiguous(a.err) || a.verdict.Admitted {
			t.Errorf("%s: %+v, %v", s.name, a.verdict, a.err)
		}
		_ = ours.Rollback(t.Context())
		_ = foreign.Rollback(t.Context())
		p.admitted(t, s.advance, s.resource, 36, fence.Above)
	}
}
