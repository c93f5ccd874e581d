package guard_test

import (
	"context"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/fencelock/fencelock/core/fence"
	"github.com/fencelock/fencelock/core/lock"
)

// scenario plays one course of events with two transactions and says what went wrong; "" if nothing did.
type scenario struct {
	name string
	play func(t *testing.T, p *place, s shape, advance advancer) string
}

func scenarios() []scenario {
	return []scenario{
		{"a foreign transaction that is open raises the mark, then the older token comes", foreignRaises},
		{"the same by the rule Equal", foreignRaisesBeforeEqual},
		{"a newer token comes while a write by the rule Equal is open", newerComesWhileEqualIsOpen},
		{"the same at REPEATABLE READ", newerReadsWhileEqualIsOpen},
	}
}

func foreignRaises(t *testing.T, p *place, s shape, advance advancer) string {
	t.Helper()
	return overtaken(t, p, s, advance, 33, fence.NotBelow)
}

func foreignRaisesBeforeEqual(t *testing.T, p *place, s shape, advance advancer) string {
	t.Helper()
	return overtaken(t, p, s, advance, 33, fence.Equal)
}

// overtaken: 34 has raised the mark and not committed when an older token asks.
func overtaken(t *testing.T, p *place, s shape, advance advancer, token lock.Token, rule fence.Rule) string {
	t.Helper()
	p.admitted(t, s.advance, s.resource, 33, fence.Above)
	newer, older := p.begin(t, pgx.ReadCommitted), p.begin(t, pgx.ReadCommitted)
	admits(t, advance, newer, s.resource, 34, fence.Above)
	answers := ask(t.Context(), advance, older, s.resource, token, rule)
	if !p.waits(t, older, answers) {
		return "the older token is judged before the newer one's transaction has ended"
	}
	commit(t, newer)
	a := <-answers
	if a.err != nil {
		t.Fatal(a.err)
	}
	if a.verdict.Admitted {
		return "the older token is admitted"
	}
	if a.verdict.Highest != 34 {
		return "the refusal does not tell the mark"
	}
	return ""
}

func newerComesWhileEqualIsOpen(t *testing.T, p *place, s shape, advance advancer) string {
	t.Helper()
	p.admitted(t, s.advance, s.resource, 33, fence.Above)
	older, newer := p.begin(t, pgx.ReadCommitted), p.begin(t, pgx.ReadCommitted)
	admits(t, advance, older, s.resource, 33, fence.Equal)
	answers := ask(t.Context(), advance, newer, s.resource, 34, fence.Above)
	if !p.waits(t, newer, answers) {
		return "the newer token is admitted before the older one's write has ended"
	}
	commit(t, older)
	if a := <-answers; a.err != nil || !a.verdict.Admitted {
		return "the newer token is refused"
	}
	return ""
}

// newerReadsWhileEqualIsOpen: the newer transaction must not go on with a picture without the older one's last write.
func newerReadsWhileEqualIsOpen(t *testing.T, p *place, s shape, advance advancer) string {
	t.Helper()
	p.admitted(t, s.advance, s.resource, 33, fence.Above)
	older, newer := p.begin(t, pgx.ReadCommitted), p.begin(t, pgx.RepeatableRead)
	admits(t, advance, older, s.resource, 33, fence.Equal)
	if _, err := older.Exec(t.Context(), "INSERT INTO note (resource, token) VALUES ($1, 33)", s.resource); err != nil {
		t.Fatal(err)
	}
	answers := ask(t.Context(), advance, newer, s.resource, 34, fence.Above)
	if !p.waits(t, newer, answers) {
		return "the newer token is admitted before the older one's write has ended"
	}
	commit(t, older)
	a := <-answers
	if a.err == nil {
		var notes int
		if err := newer.QueryRow(t.Context(), "SELECT count(*) FROM note").Scan(&notes); err != nil {
			t.Fatal(err)
		}
		if notes != 1 {
			return "the newer token is admitted and does not see the older one's write"
		}
		return ""
	}
	if !lock.IsRetryable(a.err) || lock.IsAmbiguous(a.err) {
		t.Fatalf("%v is not worth another try", a.err)
	}
	return ""
}

// selectThenUpdate looks and then writes: what it looked at may have changed in between.
func selectThenUpdate(s shape) advancer {
	return func(ctx context.Context, tx pgx.Tx, resource string, token lock.Token, rule fence.Rule) (fence.Verdict, error) {
		return lookThenRaise(ctx, tx, s.read, s.raise, resource, token, rule)
	}
}

// equalWithoutLock is right but for Equal, which changes nothing and so locks nothing.
func equalWithoutLock(s shape) advancer {
	return func(ctx context.Context, tx pgx.Tx, resource string, token lock.Token, rule fence.Rule) (fence.Verdict, error) {
		if rule != fence.Equal {
			return s.advance(ctx, tx, resource, token, rule)
		}
		return lookThenRaise(ctx, tx, s.read, "", resource, token, rule)
	}
}

// equalWithLockOnly locks the row for Equal and does not change it.
func equalWithLockOnly(s shape) advancer {
	return func(ctx context.Context, tx pgx.Tx, resource string, token lock.Token, rule fence.Rule) (fence.Verdict, error) {
		if rule != fence.Equal {
			return s.advance(ctx, tx, resource, token, rule)
		}
		return lookThenRaise(ctx, tx, s.hold, "", resource, token, rule)
	}
}

func lookThenRaise(
	ctx context.Context, tx pgx.Tx, read, raise, resource string, token lock.Token, rule fence.Rule,
) (fence.Verdict, error) {
	var highest lock.Token
	if err := tx.QueryRow(ctx, read, resource).Scan(&highest); err != nil {
		return fence.Verdict{}, err
	}
	if !rule.Admits(token, highest) {
		return fence.Verdict{Highest: highest}, nil
	}
	if raise != "" && token != highest {
		if _, err := tx.Exec(ctx, raise, resource, int64(token)); err != nil {
			return fence.Verdict{}, err
		}
	}
	return fence.Verdict{Admitted: true, Highest: token}, nil
}

// TestTheGuardIsRightWhereMistakenOnesAreNot plays each scenario with the guard and with each mistake that one makes
// easily. The mistakes prove that the scenarios can tell.
func TestTheGuardIsRightWhereMistakenOnesAreNot(t *testing.T) {
	t.Parallel()
	mistakes := []struct {
		name string
		way  func(shape) advancer
		// fails says which scenarios notice.
		fails [4]bool
	}{
		{"the guard", func(s shape) advancer { return s.advance }, [4]bool{}},
		{"select, then update", selectThenUpdate, [4]bool{true, true, true, true}},
		{"equal without a lock", equalWithoutLock, [4]bool{false, true, true, true}},
		{"equal with a lock only", equalWithLockOnly, [4]bool{false, false, false, true}},
	}
	for _, m := range mistakes {
		for i, sc := range scenarios() {
			t.Run(m.name+": "+sc.name, func(t *testing.T) {
				t.Parallel()
				p := newPlace(t)
				for _, s := range shapes() {
					p.exec(t, "DELETE FROM note")
					if wrong := sc.play(t, p, s, m.way(s)); (wrong != "") != m.fails[i] {
						t.Errorf("%s: found %q", s.name, wrong)
					}
				}
			})
		}
	}
}
