package database_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/jackc/pgx/v5"
	"go.uber.org/goleak"

	"github.com/fencelock/fencelock/apps/payments/internal/database"
	"github.com/fencelock/fencelock/apps/payments/internal/refusal"
	"github.com/fencelock/fencelock/core/lock"
	"github.com/fencelock/fencelock/tools/testenv"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(testenv.Main(m)) }

func open(t *testing.T, url string) *database.Database {
	t.Helper()
	db, err := database.Open(t.Context(), url, "test")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(db.Close)
	return db
}

// run executes one statement in a transaction.
func run(t *testing.T, db *database.Database, statement string) error {
	t.Helper()
	return db.Within(t.Context(), func(ctx context.Context, tx pgx.Tx) error {
		_, err := tx.Exec(ctx, statement)
		return err
	})
}

// TestWhatTheDatabaseSaysIsRetryableOrABug: what speaks of the moment may be tried again, what speaks of the statement may not.
func TestWhatTheDatabaseSaysIsRetryableOrABug(t *testing.T) {
	t.Parallel()
	db := open(t, testenv.Postgres(t).Database(t))
	for state, retry := range map[string]bool{
		"55P03": true, "25006": true, "40001": true, "40P01": true, "53300": true, "57014": true, "57P01": true, "08006": true, "58030": true, "XX001": true,
		"23505": false, "23503": false, "22003": false, "42P01": false, "23000": false, "P0001": false,
	} {
		err := run(t, db, "DO $$ BEGIN RAISE EXCEPTION 'no' USING ERRCODE = '"+state+"'; END $$")
		if lock.IsRetryable(err) != retry || lock.IsAmbiguous(err) || retry && !errors.Is(err, lock.ErrContention) || err == nil {
			t.Errorf("%s: %v", state, err)
		}
	}
}

func TestARefusalPassesAndUndoesTheTransaction(t *testing.T) {
	t.Parallel()
	db := open(t, testenv.Postgres(t).Database(t))
	if err := run(t, db, "CREATE TABLE x (n int)"); err != nil {
		t.Fatal(err)
	}
	want := refusal.New(refusal.NotFound, "no")
	err := db.Within(t.Context(), func(ctx context.Context, tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, "INSERT INTO x VALUES (1)"); err != nil {
			return err
		}
		return want
	})
	if !errors.Is(err, want) || lock.CodeOf(err) != "" {
		t.Errorf("got %v", err)
	}
	var n int
	err = db.Picture(t.Context(), func(ctx context.Context, tx pgx.Tx) error { return tx.QueryRow(ctx, "SELECT count(*) FROM x").Scan(&n) })
	if err != nil || n != 0 {
		t.Errorf("%d rows, %v", n, err)
	}
	err = db.Picture(t.Context(), func(ctx context.Context, tx pgx.Tx) error {
		_, err := tx.Exec(ctx, "INSERT INTO x VALUES (1)")
		return err
	})
	if err == nil {
		t.Error("who reads has written")
	}
}

// TestAPictureIsOfOneMoment: what others commit meanwhile is not in it.
func TestAPictureIsOfOneMoment(t *testing.T) {
	t.Parallel()
	db := open(t, testenv.Postgres(t).Database(t))
	if err := run(t, db, "CREATE TABLE x (n int)"); err != nil {
		t.Fatal(err)
	}
	count := func(ctx context.Context, tx pgx.Tx) (n int) {
		t.Helper()
		if err := tx.QueryRow(ctx, "SELECT count(*) FROM x").Scan(&n); err != nil {
			t.Fatal(err)
		}
		return n
	}
	err := db.Picture(t.Context(), func(ctx context.Context, tx pgx.Tx) error {
		before := count(ctx, tx)
		if err := run(t, db, "INSERT INTO x VALUES (1)"); err != nil {
			return err
		}
		if after := count(ctx, tx); after != before {
			t.Errorf("it has %d rows, then %d", before, after)
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}

// TestACallThatIsGivenUpHitsNoOther: the request to cancel must not reach the next user of the connection.
func TestACallThatIsGivenUpHitsNoOther(t *testing.T) {
	t.Parallel()
	db := open(t, testenv.Postgres(t).Database(t))
	sleep := func(ctx context.Context, seconds float64) error {
		return db.Within(ctx, func(ctx context.Context, tx pgx.Tx) error {
			_, err := tx.Exec(ctx, "SELECT pg_sleep($1)", seconds)
			return err
		})
	}
	for i := range 300 {
		ctx, cancel := context.WithTimeout(t.Context(), time.Duration(i)*20*time.Microsecond)
		_ = sleep(ctx, 0.0015) // ends in time, or not, or just so
		cancel()
		if err := sleep(t.Context(), 0.005); err != nil {
			t.Fatalf("after call %d: %v", i, err)
		}
	}
}

// TestACallThatIsGivenUpKeepsItsConnection: callers leave often, and connections are slow to make.
func TestACallThatIsGivenUpKeepsItsConnection(t *testing.T) {
	t.Parallel()
	url := testenv.Postgres(t).Database(t)
	db := open(t, url)
	other, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close(t.Context())
	pid := func() (pid int) {
		t.Helper()
		err := db.Within(t.Context(), func(ctx context.Context, tx pgx.Tx) error {
			return tx.QueryRow(ctx, "SELECT pg_backend_pid()").Scan(&pid)
		})
		if err != nil {
			t.Fatal(err)
		}
		return pid
	}
	before := pid()
	ctx, leave := context.WithCancel(t.Context())
	go func() {
		defer leave()
		for sleeping := false; !sleeping && ctx.Err() == nil; {
			_ = other.QueryRow(ctx, "SELECT wait_event = 'PgSleep' FROM pg_stat_activity WHERE pid = $1", before).Scan(&sleeping)
		}
	}()
	err = db.Within(ctx, func(ctx context.Context, tx pgx.Tx) error {
		_, err := tx.Exec(ctx, "SELECT pg_sleep(600)")
		return err
	})
	if !errors.Is(err, lock.ErrContention) || lock.IsAmbiguous(err) {
		t.Errorf("given up: %v", err)
	}
	if after := pid(); after != before {
		t.Errorf("another connection: %d, before %d", after, before)
	}
}

func TestMigrationsThatFailAreTriedAgain(t *testing.T) {
	t.Parallel()
	db := open(t, testenv.Postgres(t).Database(t))
	file := func(sql string) fstest.MapFS {
		return fstest.MapFS{"00001_x.sql": {Data: []byte("-- +goose Up\nCREATE TABLE s.x (n int);\n" + sql)}}
	}
	if err := db.Migrate(t.Context(), "s", file("SELECT nonsense;")); err == nil || !strings.Contains(err.Error(), "migrate schema s") {
		t.Errorf("nonsense: %v", err)
	}
	for range 2 {
		if err := db.Migrate(t.Context(), "s", file("")); err != nil {
			t.Error(err)
		}
	}
	if err := run(t, db, "INSERT INTO s.x VALUES (1)"); err != nil {
		t.Error(err)
	}
}

func TestAURLThatCannotBeReadIsAnError(t *testing.T) {
	t.Parallel()
	if _, err := database.Open(t.Context(), "nothing", "test"); err == nil {
		t.Error("opened")
	}
}
