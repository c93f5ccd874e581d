package testenv_test

import (
	"context"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/fencelock/fencelock/tools/testenv"
)

func TestSharedPostgresIsOneForAllTests(t *testing.T) {
	t.Parallel()
	first, second := testenv.Postgres(t), testenv.Postgres(t)
	if first != second {
		t.Fatal("two servers, want one")
	}
}

func TestDatabasesAreApart(t *testing.T) {
	t.Parallel()
	server := testenv.Postgres(t)
	one, other := server.Database(t), server.Database(t)
	execute(t, one, "CREATE TABLE kept (value text)")
	if got := query[int](t, one, "SELECT count(*) FROM pg_class WHERE relname = 'kept'"); got != 1 {
		t.Fatalf("%d tables in the database of the table, want 1", got)
	}
	if got := query[int](t, other, "SELECT count(*) FROM pg_class WHERE relname = 'kept'"); got != 0 {
		t.Fatalf("%d tables in the other database, want 0", got)
	}
}

func execute(t *testing.T, url, statement string) {
	t.Helper()
	conn := connect(t, url)
	defer conn.Close(context.Background())
	if _, err := conn.Exec(t.Context(), statement); err != nil {
		t.Fatal(err)
	}
}

func query[V any](t *testing.T, url, statement string) V {
	t.Helper()
	conn := connect(t, url)
	defer conn.Close(context.Background())
	var value V
	if err := conn.QueryRow(t.Context(), statement).Scan(&value); err != nil {
		t.Fatal(err)
	}
	return value
}

func connect(t *testing.T, url string) *pgx.Conn {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	return conn
}
