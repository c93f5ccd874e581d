package database_test

import (
	"context"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/fencelock/fencelock/core/lock"
	"github.com/fencelock/fencelock/tools/testenv"
)

// TestACommitThatNoStandbyConfirmedIsNoSuccess: the database answers a wait for a synchronous standby that was cancelled, as a call is
// whose time is up, with success. A failover would undo what was written, so nothing may be sent on the strength of it.
func TestACommitThatNoStandbyConfirmedIsNoSuccess(t *testing.T) {
	t.Parallel()
	server := testenv.StartPostgres(t, "synchronous_standby_names=nobody")
	near := open(t, server.URL+"&synchronous_commit=local")
	for _, prepare := range []string{"CREATE TABLE x (n int)", "ALTER DATABASE postgres SET client_min_messages = 'error'"} {
		if err := run(t, near, prepare); err != nil {
			t.Fatal(err)
		}
	}
	db := open(t, server.URL+"&pool_max_conns=1")
	ended := make(chan error, 1)
	go func() {
		ended <- db.Within(t.Context(), func(ctx context.Context, tx pgx.Tx) error {
			_, err := tx.Exec(ctx, "INSERT INTO x VALUES (1)")
			return err
		})
	}()
	cancelWaits(t, server.URL)
	if err := <-ended; err == nil || !lock.IsAmbiguous(err) {
		t.Errorf("got %v, want an unknown outcome", err)
	}
	var n int
	err := db.Within(t.Context(), func(ctx context.Context, tx pgx.Tx) error {
		return tx.QueryRow(ctx, "SELECT count(*) FROM x").Scan(&n)
	})
	if err != nil || n != 1 {
		t.Errorf("the next transaction finds %d rows, %v", n, err)
	}
}

// cancelWaits returns once it has cancelled a wait for a standby.
func cancelWaits(t *testing.T, url string) {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close(t.Context()) }()
	limit := time.After(time.Minute)
	for {
		tag, err := conn.Exec(t.Context(), "SELECT pg_cancel_backend(pid) FROM pg_stat_activity WHERE wait_event = 'SyncRep'")
		if err != nil {
			t.Fatal(err)
		}
		if tag.RowsAffected() > 0 {
			return
		}
		select {
		case <-limit:
			t.Fatal("nobody waits for a standby")
		default:
		}
	}
}

// TestADatabaseThatForgetsIsRefused: after a crash an intent would be gone, and money would be sent again.
func TestADatabaseThatForgetsIsRefused(t *testing.T) {
	t.Parallel()
	files := fstest.MapFS{"00001_x.sql": {Data: []byte("-- +goose Up\nCREATE TABLE s.x (n int);\n")}}
	server := testenv.StartPostgres(t, "full_page_writes=off")
	for url, says := range map[string]string{
		server.URL: "full_page_writes is off",
		testenv.Postgres(t).Database(t) + "&synchronous_commit=off": "synchronous_commit is off",
	} {
		if err := open(t, url).Migrate(t.Context(), "s", files); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("got %v, want that %s", err, says)
		}
	}
	if err := open(t, testenv.Postgres(t).Database(t)+"&synchronous_commit=local").Migrate(t.Context(), "s", files); err != nil {
		t.Errorf("one that keeps what it has committed: %v", err)
	}
}
