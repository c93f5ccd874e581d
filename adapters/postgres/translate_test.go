package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/fencelock/fencelock/adapters/postgres"
	"github.com/fencelock/fencelock/core/lock"
	"github.com/fencelock/fencelock/tools/testenv"
)

func answer(severity, state string) error {
	return &pgconn.PgError{Severity: severity, SeverityUnlocalized: severity, Code: state, Message: "as planned"}
}

func TestTranslate(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name    string
		err     error
		code    lock.Code
		unknown bool // of a write
	}{
		{"connection exception, as an answer", answer("ERROR", "08000"), lock.CodeContention, false},
		{"connection failure", answer("FATAL", "08006"), lock.CodeContention, true},
		{"protocol violation, as poolers say", answer("FATAL", "08P01"), lock.CodeContention, true},
		{"transaction resolution unknown", answer("ERROR", "08007"), lock.CodeContention, true},
		{"data exception", answer("ERROR", "22003"), lock.CodeContention, false},
		{"integrity", answer("ERROR", "23505"), lock.CodeContention, false},
		{"standby", answer("ERROR", "25006"), lock.CodeNotLeader, false},
		{"failed transaction", answer("ERROR", "25P02"), lock.CodeContention, false},
		{"wrong password", answer("FATAL", "28P01"), lock.CodeContention, true},
		{"database is missing", answer("FATAL", "3D000"), lock.CodeContention, true},
		{"schema is missing", answer("ERROR", "3F000"), lock.CodeContention, false},
		{"serialization", answer("ERROR", "40001"), lock.CodeContention, false},
		{"deadlock", answer("ERROR", "40P01"), lock.CodeContention, false},
		{"completion unknown", answer("ERROR", "40003"), lock.CodeContention, true},
		{"privilege", answer("ERROR", "42501"), lock.CodeContention, false},
		{"table is missing", answer("ERROR", "42P01"), lock.CodeContention, false},
		{"disk full", answer("ERROR", "53100"), lock.CodeContention, false},
		{"too many connections", answer("FATAL", "53300"), lock.CodeContention, true},
		{"program limit", answer("ERROR", "54000"), lock.CodeContention, false},
		{"row is locked", answer("ERROR", "55P03"), lock.CodeContention, false},
		{"object in use", answer("ERROR", "55006"), lock.CodeContention, false},
		{"cancelled", answer("ERROR", "57014"), lock.CodeContention, false},
		{"terminated", answer("FATAL", "57P01"), lock.CodeContention, true},
		{"crash of another backend", answer("WARNING", "57P02"), lock.CodeContention, true},
		{"starting up", answer("FATAL", "57P03"), lock.CodeContention, true},
		{"idle session", answer("FATAL", "57P05"), lock.CodeContention, true},
		{"input or output", answer("ERROR", "58030"), lock.CodeContention, false},
		{"corruption", answer("ERROR", "XX001"), lock.CodeContention, false},
		{"internal", answer("ERROR", "XX000"), lock.CodeContention, false},
		{"panic", answer("PANIC", "XX000"), lock.CodeContention, true},
		{"a state of the future", answer("ERROR", "ZZ999"), lock.CodeContention, false},
		{"no state", answer("ERROR", ""), lock.CodeContention, false},
		{"an old pooler that speaks no V field", &pgconn.PgError{Severity: "ERROR", Code: "22003"}, lock.CodeContention, false},
		{"deadline", context.DeadlineExceeded, lock.CodeContention, true},
		{"cancelled call", fmt.Errorf("call: %w", context.Canceled), lock.CodeContention, true},
		{"connection broken", &net.OpError{Op: "read", Err: errors.New("reset")}, lock.CodeContention, true},
		{"anything else", errors.New("surprise"), lock.CodeContention, true},
		{"no row", pgx.ErrNoRows, lock.CodeContention, true},
		{"rolled back at the commit", pgx.ErrTxCommitRollback, lock.CodeContention, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			for _, wrote := range []bool{false, true} {
				err := postgres.Translate(fmt.Errorf("wrapped: %w", c.err), wrote)
				if lock.CodeOf(err) != c.code || !lock.IsRetryable(err) {
					t.Errorf("got %v, code %s, want a retryable %s", err, lock.CodeOf(err), c.code)
				}
				if got := lock.IsAmbiguous(err); got != (c.unknown && wrote) {
					t.Errorf("outcome unknown is %v of a write %v", got, wrote)
				}
				if !errors.Is(err, c.err) {
					t.Error("the driver's error is out of reach")
				}
				if got, want := errors.Is(err, postgres.ErrRowLocked), c.name == "row is locked"; got != want {
					t.Errorf("the row being locked is %v", got)
				}
			}
		})
	}
	if err := postgres.Translate(nil, true); err != nil {
		t.Errorf("no error became %v", err)
	}
	if err := postgres.Translate(fmt.Errorf("wrapped: %w", lock.ErrSessionDead), true); !errors.Is(err, lock.ErrSessionDead) {
		t.Errorf("an error of the set became %v", err)
	}
}

// victim is a pool through a proxy whose connections come to harm, and a way around it to a table with one row.
type victim struct {
	t     *testing.T
	proxy *testenv.Proxy
	admin *pgxpool.Pool
	work  *pgxpool.Pool
	ended chan error
}

func newVictim(t *testing.T) *victim {
	t.Helper()
	url := testenv.Postgres(t).Database(t)
	v := &victim{t: t, proxy: testenv.NewProxy(t, address(t, url)), admin: raw(t, url), ended: make(chan error, 1)}
	mustExec(t, v.admin, "CREATE TABLE public.target (id int PRIMARY KEY); INSERT INTO public.target VALUES (1)")
	pools, err := postgres.OpenPools(t.Context(), postgres.Access{URL: through(t, url, v.proxy)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pools.Close)
	v.work = pools.Work()
	return v
}

func (v *victim) write(sql string) error {
	ctx, cancel := context.WithTimeout(v.t.Context(), patience)
	defer cancel()
	_, err := v.work.Exec(ctx, sql)
	return postgres.Translate(err, true)
}

func (v *victim) verdict(what string, err error, code lock.Code, unknown bool) {
	v.t.Helper()
	if lock.CodeOf(err) != code || lock.IsAmbiguous(err) != unknown {
		v.t.Errorf("%s: got %v (code %s, outcome unknown %v), want %s, %v",
			what, err, lock.CodeOf(err), lock.IsAmbiguous(err), code, unknown)
	}
}

// TestTranslateWhatTheDatabaseSays: the same of a real driver and a real database. Each statement is a write.
func TestTranslateWhatTheDatabaseSays(t *testing.T) {
	t.Parallel()
	v := newVictim(t)
	tx, err := v.admin.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tx.Exec(t.Context(), "SELECT FROM public.target FOR UPDATE"); err != nil {
		t.Fatal(err)
	}
	err = v.write("SET lock_timeout = '10ms'; UPDATE public.target SET id = id")
	v.verdict("lock timeout", err, lock.CodeContention, false)
	if !errors.Is(err, postgres.ErrRowLocked) {
		t.Errorf("a lock timeout is not seen as a locked row: %v", err)
	}
	_ = tx.Rollback(t.Context())

	const slow, slower = "UPDATE public.target SET id = id WHERE pg_sleep(600) IS NULL", "UPDATE public.target SET id = id WHERE pg_sleep(700) IS NULL"
	v.verdict("statement timeout", v.write("SET statement_timeout = '10ms'; "+slow), lock.CodeContention, false)
	v.verdict("duplicate", v.write("INSERT INTO public.target VALUES (1)"), lock.CodeContention, false)
	v.verdict("read-only transaction", v.write("BEGIN READ ONLY; DELETE FROM public.target"), lock.CodeNotLeader, false)

	go func() { v.ended <- v.write(slow) }()
	eventually(t, "the statement is ended", func() bool { return terminate(t, v.admin, "%pg_sleep(600)%") })
	v.verdict("terminated", <-v.ended, lock.CodeContention, true)

	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		_, err := v.work.Exec(ctx, slower)
		v.ended <- postgres.Translate(err, true)
	}()
	eventually(t, "the statement runs", func() bool { return rows(t, v.admin, activity, "%pg_sleep(700)%") == 1 })
	cancel()
	v.verdict("cancelled, and the database has confirmed that", <-v.ended, lock.CodeContention, false)
	conn, err := v.work.Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Release()
	_, err = conn.Exec(ctx, "DELETE FROM public.target")
	v.verdict("cancelled before it was sent", postgres.Translate(err, true), lock.CodeContention, false)
}

// TestTranslateLostAnswers: the commit happens, and its answer is lost, of a simple statement and of a prepared one. The
// driver has said of the first that it is safe to try again.
func TestTranslateLostAnswers(t *testing.T) {
	t.Parallel()
	v := newVictim(t)
	for _, c := range []struct {
		warm, lost []any // statement and arguments
	}{
		{[]any{"SELECT"}, []any{"INSERT INTO public.target VALUES (7)"}},
		{[]any{"INSERT INTO public.target VALUES ($1)", 8}, []any{"INSERT INTO public.target VALUES ($1)", 7}},
	} {
		mustExec(t, v.admin, "DELETE FROM public.target")
		conn, err := v.work.Acquire(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		send := func(statement []any) error {
			_, err := conn.Exec(t.Context(), statement[0].(string), statement[1:]...)
			return postgres.Translate(err, true)
		}
		if err := send(c.warm); err != nil {
			t.Fatal(err)
		}
		v.proxy.HoldAnswers()
		go func() { v.ended <- send(c.lost) }()
		eventually(t, "the row is there", func() bool { return rows(t, v.admin, "SELECT FROM public.target WHERE id = 7") == 1 })
		v.proxy.Cut()
		v.verdict("cut after the commit", <-v.ended, lock.CodeContention, true)
		conn.Release()
		v.verdict("nobody there", v.write("INSERT INTO public.target VALUES (9)"), lock.CodeContention, false)
		v.proxy.ReleaseAnswers()
		v.proxy.Heal()
	}
	if n := rows(t, v.admin, "SELECT FROM public.target WHERE id = 9"); n != 0 {
		t.Error("a statement that was not sent was carried out")
	}
}
