package testenv_test

import (
	"context"
	"net/url"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/fencelock/fencelock/tools/testenv"
)

func TestPoolerSharesConnectionsByTransaction(t *testing.T) {
	t.Parallel()
	pooled := testenv.PgBouncer(t, testenv.Postgres(t).Database(t), "default_pool_size=1")
	one, other := connect(t, pooled), connect(t, pooled)
	defer one.Close(context.Background())
	defer other.Close(context.Background())

	// Both are served although there is one connection to the server, which a session would keep.
	first, second := backend(t, one), backend(t, other)
	if first != second {
		t.Fatalf("processes %d and %d of the server, want one", first, second)
	}
	if _, err := one.Exec(t.Context(), "BEGIN"); err != nil {
		t.Fatal(err)
	}
	waited := make(chan error, 1)
	go func() {
		_, err := other.Exec(context.Background(), "SELECT 1")
		waited <- err
	}()
	select {
	case err := <-waited:
		t.Fatalf("two transactions at once over one connection: %v", err)
	case <-time.After(short):
	}
	if _, err := one.Exec(t.Context(), "COMMIT"); err != nil {
		t.Fatal(err)
	}
	if err := <-waited; err != nil {
		t.Fatal(err)
	}
}

func TestPoolerServesEveryDatabase(t *testing.T) {
	t.Parallel()
	server := testenv.Postgres(t)
	one, other := server.Database(t), server.Database(t)
	pooled := testenv.PgBouncer(t, one)
	for _, database := range []string{one, other} {
		name := query[string](t, database, "SELECT current_database()")
		if got := query[string](t, withDatabase(t, pooled, name), "SELECT current_database()"); got != name {
			t.Fatalf("database %s, want %s", got, name)
		}
	}
}

func TestPoolerThatCannotStartSaysWhy(t *testing.T) {
	t.Parallel()
	r := &recorder{TB: t}
	server := testenv.Postgres(t)
	failed := r.run(func() { testenv.PgBouncer(r, server.URL, "no_such_setting=1") })
	if !failed || !contains(r.text(), "no_such_setting") {
		t.Fatalf("failed=%v with %q, want a failure that names the setting", failed, r.text())
	}
}

// backend returns the server's process that serves a connection.
func backend(t *testing.T, conn *pgx.Conn) int {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var pid int
	if err := conn.QueryRow(ctx, "SELECT pg_backend_pid()", pgx.QueryExecModeSimpleProtocol).Scan(&pid); err != nil {
		t.Fatal(err)
	}
	return pid
}

// withDatabase returns the URL of another database of the same server.
func withDatabase(t *testing.T, databaseURL, name string) string {
	t.Helper()
	u, err := url.Parse(databaseURL)
	if err != nil {
		t.Fatal(err)
	}
	u.Path = "/" + name
	return u.String()
}
