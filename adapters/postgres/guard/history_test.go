package guard_test

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5"
	"pgregory.net/rapid"

	"github.com/fencelock/fencelock/core/fence"
	"github.com/fencelock/fencelock/core/lock"
)

// note is a write that was committed under the guard, in the order of the writes.
type note struct {
	N     int64
	Token int64
	Claim bool
	// Seen is how many notes of the resource a claim found after its admission.
	Seen int64
}

// TestTheHistoryOfAResourceIsMonotone lets many grants write to one resource at once, each with a claim and later
// writes, and those that were overtaken go on as if they were not. What was committed must be in the order of tokens, and
// each claim must have seen all that was written before it.
func TestTheHistoryOfAResourceIsMonotone(t *testing.T) {
	t.Parallel()
	for _, level := range []pgx.TxIsoLevel{pgx.ReadCommitted, pgx.RepeatableRead} {
		t.Run(string(level), func(t *testing.T) {
			t.Parallel()
			p := newPlace(t)
			for _, s := range shapes()[:2] {
				p.exec(t, "TRUNCATE note")
				p.crowd(t, s, level)
				p.checkHistory(t, s)
			}
		})
	}
}

// crowd is eight workers with grants of their own, whose tokens are in no order in time.
func (p *place) crowd(t *testing.T, s shape, level pgx.TxIsoLevel) {
	t.Helper()
	var next atomic.Int64
	var work sync.WaitGroup
	for range 8 {
		work.Go(func() {
			for range 12 {
				token := lock.Token(next.Add(1))
				for i, rule := range []fence.Rule{fence.Above, fence.Equal, fence.Equal} {
					if err := p.write(t, s, level, token, rule, i == 0); err != nil && !errors.Is(err, lock.ErrFencedOut) {
						t.Errorf("write: %v", err)
						return
					}
				}
			}
		})
	}
	work.Wait()
}

// write tries until it is told what became of it.
func (p *place) write(t *testing.T, s shape, level pgx.TxIsoLevel, token lock.Token, rule fence.Rule, claim bool) error {
	t.Helper()
	for {
		err := pgx.BeginTxFunc(t.Context(), p.pool, pgx.TxOptions{IsoLevel: level}, func(tx pgx.Tx) error {
			if err := fence.New(s.marks.In(tx)).AdmitBy(t.Context(), rule, s.resource, token); err != nil {
				return err
			}
			_, err := tx.Exec(t.Context(), "INSERT INTO note (resource, token, claim, seen)"+
				" SELECT $1::text, $2::bigint, $3::bool, count(*) FROM note WHERE resource = $1::text", s.resource, int64(token), claim)
			return err
		})
		if !lock.IsRetryable(err) {
			return err
		}
	}
}

func (p *place) checkHistory(t *testing.T, s shape) {
	t.Helper()
	rows, err := p.pool.Query(t.Context(), "SELECT n, token, claim, seen FROM note ORDER BY n")
	if err != nil {
		t.Fatal(err)
	}
	notes, err := pgx.CollectRows(rows, pgx.RowToStructByPos[note])
	if err != nil {
		t.Fatal(err)
	}
	if wrong := judge(notes); wrong != "" {
		t.Errorf("%s: %s", s.name, wrong)
	}
	if len(notes) < 8 {
		t.Errorf("%s: only %d writes came through", s.name, len(notes))
	}
}

// judge finds what is wrong with a history; "" if nothing is.
func judge(notes []note) string {
	highest := int64(0)
	for i, n := range notes {
		switch {
		case n.Claim && n.Token <= highest:
			return fmt.Sprintf("%d claims after %d", n.Token, highest)
		case !n.Claim && n.Token != highest:
			return fmt.Sprintf("%d writes after %d", n.Token, highest)
		case n.Seen != int64(i):
			return fmt.Sprintf("%d has seen %d of the %d writes before", n.Token, n.Seen, i)
		}
		highest = n.Token
	}
	return ""
}

func TestTheJudgeOfHistoriesCanTell(t *testing.T) {
	t.Parallel()
	for want, notes := range map[string][]note{
		"":                                    {{1, 5, true, 0}, {2, 5, false, 1}, {3, 7, true, 2}},
		"5 claims after 7":                    {{1, 7, true, 0}, {2, 5, true, 1}},
		"7 claims after 7":                    {{1, 7, true, 0}, {2, 7, true, 1}},
		"5 writes after 7":                    {{1, 5, true, 0}, {2, 7, true, 1}, {3, 5, false, 2}},
		"8 writes after 7":                    {{1, 7, true, 0}, {2, 8, false, 1}},
		"7 has seen 0 of the 1 writes before": {{1, 5, true, 0}, {2, 7, true, 0}},
	} {
		if got := judge(notes); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

// TestTheGuardDoesWhatTheRuleSays plays drawn steps in transactions that commit or not, beside a model of one number.
func TestTheGuardDoesWhatTheRuleSays(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	for _, s := range shapes()[:2] {
		rapid.Check(t, func(rt *rapid.T) {
			committed := p.markOf(t, s)
			base := committed
			for range rapid.IntRange(1, 4).Draw(rt, "transactions") {
				tx := p.begin(t, pgx.ReadCommitted)
				mark := committed
				for range rapid.IntRange(1, 5).Draw(rt, "steps") {
					token := max(1, base-2+lock.Token(rapid.IntRange(0, 6).Draw(rt, "token")))
					rule := rapid.SampledFrom([]fence.Rule{fence.Above, fence.Equal, fence.NotBelow}).Draw(rt, "rule")
					want := fence.Verdict{Admitted: rule.Admits(token, mark), Highest: mark}
					if want.Admitted {
						mark, want.Highest = token, token
					}
					if got, err := s.advance(t.Context(), tx, s.resource, token, rule); err != nil || got != want {
						rt.Fatalf("%s: %d by %s: got %+v, %v, want %+v", s.name, token, rule, got, err, want)
					}
				}
				if rapid.Bool().Draw(rt, "commit") {
					commit(t, tx)
					committed = mark
				} else if err := tx.Rollback(t.Context()); err != nil {
					rt.Fatal(err)
				}
			}
		})
	}
}

// markOf reads a mark; 0 where there is none yet.
func (p *place) markOf(t *testing.T, s shape) lock.Token {
	t.Helper()
	var mark lock.Token
	if err := p.pool.QueryRow(t.Context(), s.read, s.resource).Scan(&mark); err != nil && !errors.Is(err, pgx.ErrNoRows) {
		t.Fatal(err)
	}
	return mark
}
