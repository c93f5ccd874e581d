package guard_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"go.uber.org/goleak"

	"github.com/fencelock/fencelock/adapters/postgres/guard"
	"github.com/fencelock/fencelock/core/fence"
	"github.com/fencelock/fencelock/core/lock"
	"github.com/fencelock/fencelock/tools/testenv"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(testenv.Main(m)) }

// patience bounds every wait for what must happen.
const patience = 30 * time.Second

// advancer is one way to ask for a mark inside a transaction: the guard's, or a mistaken one.
type advancer func(ctx context.Context, tx pgx.Tx, resource string, token lock.Token, rule fence.Rule) (fence.Verdict, error)

// shape is one place where marks stand, with a resource that is there.
type shape struct {
	name     string
	marks    *guard.Marks
	resource string
	// read, raise and hold are the parts of the mistaken ways; $1 is the resource, $2 the token.
	read, raise, hold string
}

func (s shape) advance(ctx context.Context, tx pgx.Tx, resource string, token lock.Token, rule fence.Rule) (fence.Verdict, error) {
	return s.marks.In(tx).Advance(ctx, resource, token, rule)
}

// place is a database of its own with a table for each shape, and one for what was written under the guard.
type place struct {
	url  string
	pool *pgxpool.Pool
}

func newPlace(t *testing.T) *place {
	t.Helper()
	url := testenv.Postgres(t).Database(t)
	p := &place{url: url, pool: open(t, url, pgx.QueryExecModeCacheStatement)}
	for _, sql := range []string{
		`CREATE SCHEMA "the ""marks"`,
		guard.CreateTable(table()),
		`CREATE TABLE account (id text PRIMARY KEY, fence bigint)`,
		`INSERT INTO account VALUES ('a'), ('b')`,
		`CREATE TABLE "Weird; table" ("the ""id" bigint PRIMARY KEY, "select" bigint NOT NULL DEFAULT 0)`,
		`INSERT INTO "Weird; table" VALUES (4711)`,
		`CREATE TABLE thing (id uuid PRIMARY KEY, mark bigint NOT NULL)`,
		`INSERT INTO thing VALUES ('00000000-0000-0000-0000-000000000001', 0)`,
		`CREATE TABLE note (n bigint GENERATED ALWAYS AS IDENTITY, resource text, token bigint, claim bool, seen bigint)`,
	} {
		p.exec(t, sql)
	}
	return p
}

func table() pgx.Identifier { return pgx.Identifier{`the "marks`, "of (resources)"} }

func shapes() []shape {
	marks := func(s shape, table, id, mark string) shape {
		s.read = fmt.Sprintf("SELECT coalesce(%s, 0) FROM %s WHERE %s::text = $1::text", mark, table, id)
		s.raise = fmt.Sprintf("UPDATE %s SET %s = $2::bigint WHERE %s::text = $1::text", table, mark, id)
		s.hold = s.read + " FOR UPDATE"
		return s
	}
	weird := guard.Column{Table: pgx.Identifier{"Weird; table"}, ID: `the "id`, IDType: "bigint", Mark: "select"}
	own := marks(shape{name: "table", marks: guard.NewTable(table()), resource: "a"}, table().Sanitize(), "resource", "mark")
	own.raise = "INSERT INTO " + table().Sanitize() + " VALUES ($1::text, $2::bigint) ON CONFLICT (resource) DO UPDATE SET mark = excluded.mark"
	return []shape{
		own,
		marks(shape{
			name: "column", resource: "a",
			marks: guard.NewColumn(guard.Column{Table: pgx.Identifier{"public", "account"}, ID: "id", Mark: "fence"}),
		}, "account", "id", "fence"),
		marks(shape{name: "column by number", resource: "4711", marks: guard.NewColumn(weird)}, `"Weird; table"`, `"the ""id"`, `"select"`),
		marks(shape{
			name: "column by uuid", resource: "00000000-0000-0000-0000-000000000001",
			marks: guard.NewColumn(guard.Column{Table: pgx.Identifier{"thing"}, ID: "id", IDType: "uuid", Mark: "mark"}),
		}, "thing", "id", "mark"),
	}
}

func open(t *testing.T, url string, mode pgx.QueryExecMode) *pgxpool.Pool {
	t.Helper()
	config, err := pgxpool.ParseConfig(url)
	if err != nil {
		t.Fatal(err)
	}
	config.MaxConns = 12
	config.ConnConfig.DefaultQueryExecMode = mode
	pool, err := pgxpool.NewWithConfig(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	return pool
}

func (p *place) exec(t *testing.T, sql string) {
	t.Helper()
	if _, err := p.pool.Exec(t.Context(), sql); err != nil {
		t.Fatalf("execute %q: %v", sql, err)
	}
}

// begin opens a transaction that is rolled back with the test.
func (p *place) begin(t *testing.T, level pgx.TxIsoLevel) pgx.Tx {
	t.Helper()
	tx, err := p.pool.BeginTx(t.Context(), pgx.TxOptions{IsoLevel: level})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = tx.Rollback(context.WithoutCancel(t.Context())) })
	return tx
}

// admitted lets a token through and commits.
func (p *place) admitted(t *testing.T, advance advancer, resource string, token lock.Token, rule fence.Rule) {
	t.Helper()
	tx := p.begin(t, pgx.ReadCommitted)
	admits(t, advance, tx, resource, token, rule)
	commit(t, tx)
}

func admits(t *testing.T, advance advancer, tx pgx.Tx, resource string, token lock.Token, rule fence.Rule) {
	t.Helper()
	v, err := advance(t.Context(), tx, resource, token, rule)
	if want := (fence.Verdict{Admitted: true, Highest: token}); err != nil || v != want {
		t.Fatalf("%s: %d by %s: %+v, %v", resource, token, rule, v, err)
	}
}

func commit(t *testing.T, tx pgx.Tx) {
	t.Helper()
	if err := tx.Commit(t.Context()); err != nil {
		t.Fatalf("commit: %v", err)
	}
}

// answer is what an advance gave.
type answer struct {
	verdict fence.Verdict
	err     error
}

// ask starts an advance that may have to wait.
func ask(ctx context.Context, advance advancer, tx pgx.Tx, resource string, token lock.Token, rule fence.Rule) chan answer {
	answers := make(chan answer, 1)
	go func() {
		v, err := advance(ctx, tx, resource, token, rule)
		answers <- answer{v, err}
	}()
	return answers
}

// waits reports, once either is so, whether the transaction waits for another one; false: it has answered.
func (p *place) waits(t *testing.T, tx pgx.Tx, answers chan answer) bool {
	t.Helper()
	pid := tx.Conn().PgConn().PID()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	timeout := time.After(patience)
	for {
		select {
		case <-timeout:
			t.Fatal("the advance neither waits nor answers")
		case a := <-answers:
			answers <- a
			return false
		case <-tick.C:
		}
		var blocked bool
		if err := p.pool.QueryRow(t.Context(), "SELECT cardinality(pg_blocking_pids($1)) > 0", int32(pid)).Scan(&blocked); err != nil {
			t.Fatal(err)
		}
		if blocked {
			return true
		}
	}
}
