package testenv_test

import (
	"context"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

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
	write(t, one, "value")
	if got := read(t, one); got != "value" {
		t.Fatalf("read %q, want value", got)
	}
	if got := query[int](t, other, "SELECT count(*) FROM pg_class WHERE relname = 'kept'"); got != 0 {
		t.Fatal("the table of one database is in the other")
	}
}

func TestDatabasesCanBeMadeAtOnce(t *testing.T) {
	t.Parallel()
	server := testenv.Postgres(t)
	const many = 8
	urls := make([]string, many)
	var all sync.WaitGroup
	for i := range urls {
		all.Go(func() { urls[i] = server.Database(t) })
	}
	all.Wait()
	seen := map[string]bool{}
	for _, url := range urls {
		seen[query[string](t, url, "SELECT current_database()")] = true
	}
	if len(seen) != many {
		t.Fatalf("%d databases, want %d", len(seen), many)
	}
}

func TestDatabaseIsGoneAfterItsTestWithConnectionsOpen(t *testing.T) {
	t.Parallel()
	server := testenv.Postgres(t)
	var name string
	var left *pgx.Conn
	t.Run("the test", func(t *testing.T) {
		left = connect(t, server.Database(t))
		if err := left.QueryRow(t.Context(), "SELECT current_database()").Scan(&name); err != nil {
			t.Fatal(err)
		}
	})
	defer left.Close(context.Background())
	if query[bool](t, server.URL, "SELECT EXISTS (SELECT FROM pg_database WHERE datname = '"+name+"')") {
		t.Fatalf("database %s is still there", name)
	}
}

func TestPostgresIsDurableByDefaultAndTakesSettings(t *testing.T) {
	t.Parallel()
	const setting = "SELECT setting FROM pg_settings WHERE name = "
	node := testenv.StartPostgres(t, "max_connections=17", "work_mem=1MB")
	for name, want := range map[string]string{
		"fsync": "on", "synchronous_commit": "on", "full_page_writes": "on", "max_connections": "17", "work_mem": "1024",
	} {
		if got := query[string](t, node.URL, setting+"'"+name+"'"); got != want {
			t.Errorf("%s is %s, want %s", name, got, want)
		}
	}
}

func TestPostgresKeepsItsDataThroughStopAndKill(t *testing.T) {
	t.Parallel()
	node := testenv.StartPostgres(t)
	url := node.Database(t)
	ends := []struct {
		name string
		end  func()
	}{{"kill", node.Kill}, {"stop", node.Stop}, {"restart at once", func() {}}}
	for _, e := range ends {
		write(t, url, e.name)
		e.end()
		node.Restart()
		if got := read(t, url); got != e.name {
			t.Fatalf("after a %s the value is %q", e.name, got)
		}
	}
}

// A process that computes does not notice that its server has died, and no new one starts beside it.
func TestKillSparesNoProcessOfTheServer(t *testing.T) {
	t.Parallel()
	node := testenv.StartPostgres(t)
	conn := connect(t, node.URL)
	defer conn.Close(context.Background())
	ended := make(chan error, 1)
	go func() {
		_, err := conn.Exec(context.Background(), "DO $$ BEGIN LOOP END LOOP; END $$")
		ended <- err
	}()
	eventually(t, func() bool {
		return query[bool](t, node.URL, "SELECT EXISTS (SELECT FROM pg_stat_activity WHERE state = 'active' AND query LIKE 'DO%')")
	})
	node.Kill()
	select {
	case err := <-ended:
		if err == nil {
			t.Fatal("an endless loop ended well")
		}
	case <-time.After(time.Minute):
		t.Fatal("a process of the killed server goes on")
	}
	node.Restart()
	query[int](t, node.URL, "SELECT 1")
}

func TestPausedPostgresAnswersNothingUntilResumed(t *testing.T) {
	t.Parallel()
	node := testenv.StartPostgres(t)
	conn := connect(t, node.URL)
	defer conn.Close(context.Background())
	node.Pause()
	answered := make(chan error, 1)
	go func() {
		_, err := conn.Exec(context.Background(), "SELECT 1")
		answered <- err
	}()
	select {
	case err := <-answered:
		t.Fatalf("a paused server answered an open connection: %v", err)
	case <-time.After(short):
	}
	ctx, cancel := context.WithTimeout(t.Context(), short)
	defer cancel()
	if late, err := pgx.Connect(ctx, node.URL); err == nil {
		_ = late.Close(ctx)
		t.Fatal("a paused server took a connection")
	}
	node.Resume()
	if err := <-answered; err != nil {
		t.Fatalf("the query of the pause failed: %v", err)
	}
	node.Pause()
	node.Kill()
	node.Restart()
	query[int](t, node.URL, "SELECT 1")
}

func TestPostgresThatCannotStartSaysWhy(t *testing.T) {
	t.Parallel()
	r := &recorder{TB: t}
	failed := r.run(func() { testenv.StartPostgres(r, "no_such_setting=1") })
	if !failed || !contains(r.text(), "no_such_setting") {
		t.Fatalf("failed=%v with %q, want a failure that names the setting", failed, r.text())
	}
}

func TestForcedWayWithoutPostgresFailsAndSaysWhatToInstall(t *testing.T) {
	t.Setenv("FENCELOCK_TEST_ENV", "docker")
	t.Setenv("DOCKER_HOST", "unix:///nonexistent/docker.sock")
	r := &recorder{TB: t}
	failed := r.run(func() { testenv.StartPostgres(r) })
	for _, want := range []string{"make images", "FENCELOCK_TEST_POSTGRES", "apt-get install postgresql"} {
		if !failed || !contains(r.text(), want) {
			t.Fatalf("failed=%v with %q, want a failure that says %q", failed, r.text(), want)
		}
	}
}

func TestPostgresBehindAProxy(t *testing.T) {
	t.Parallel()
	proxy := testenv.NewProxy(t, testenv.Postgres(t).Database(t))
	write(t, proxy.URL(), "value")
	proxy.Cut()
	if conn, err := pgx.Connect(t.Context(), proxy.URL()); err == nil {
		_ = conn.Close(t.Context())
		t.Fatal("a cut proxy took a connection")
	}
}

func TestChosenVersionOfPostgresIsStarted(t *testing.T) {
	t.Parallel()
	want := os.Getenv("FENCELOCK_TEST_POSTGRES_VERSION")
	got := query[string](t, testenv.StartPostgres(t).URL, "SHOW server_version")
	if !strings.HasPrefix(got, want) {
		t.Fatalf("version %s, want %s", got, want)
	}
}

// write makes value the only one of the database.
func write(t *testing.T, url, value string) {
	t.Helper()
	conn := connect(t, url)
	defer conn.Close(context.Background())
	_, err := conn.Exec(t.Context(), `
CREATE TABLE IF NOT EXISTS kept (value text);
DELETE FROM kept;
INSERT INTO kept VALUES ('`+value+`')`)
	if err != nil {
		t.Fatal(err)
	}
}

func read(t *testing.T, url string) string {
	t.Helper()
	return query[string](t, url, "SELECT value FROM kept")
}

// query returns the only value of a statement's answer. No statement is prepared, for poolers that
// forget them.
func query[V any](t *testing.T, url, statement string) V {
	t.Helper()
	conn := connect(t, url)
	defer conn.Close(context.Background())
	var value V
	if err := conn.QueryRow(t.Context(), statement, pgx.QueryExecModeSimpleProtocol).Scan(&value); err != nil {
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

// eventually waits until holds, and fails the test if it does not within a time that no machine needs.
func eventually(t *testing.T, holds func() bool) {
	t.Helper()
	limit := time.NewTimer(time.Minute)
	defer limit.Stop()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for !holds() {
		select {
		case <-tick.C:
		case <-limit.C:
			t.Fatal("it never came to be")
		}
	}
}
