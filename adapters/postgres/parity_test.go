package postgres_test

import (
	"context"
	"errors"
	"net/url"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/fencelock/fencelock/adapters/postgres"
	"github.com/fencelock/fencelock/contracts/parity"
	"github.com/fencelock/fencelock/core/lock"
	"github.com/fencelock/fencelock/core/port"
	"github.com/fencelock/fencelock/tools/testenv"
)

func TestParity(t *testing.T) {
	t.Logf("store: PostgreSQL %d", majorVersion(t))
	parity.RunParity(t, parity.Harness{New: newFixture})
}

// majorVersion is that of the server, such as 17.
func majorVersion(t *testing.T) (major int) {
	t.Helper()
	const ask = "SELECT current_setting('server_version_num')::int / 10000"
	if err := raw(t, testenv.Postgres(t).URL).QueryRow(t.Context(), ask).Scan(&major); err != nil {
		t.Fatalf("ask for the version: %v", err)
	}
	return major
}

// newFixture binds the parity suite: hooks, and nothing else.
func newFixture(t parity.T) parity.Fixture {
	t.Helper()
	direct := testenv.Postgres(tempT{t}).Database(tempT{t})
	proxy := testenv.NewProxy(tempT{t}, address(t, direct))
	pool := raw(t, direct)
	passage := through(t, direct, proxy)
	first := dial(t, postgres.Access{URL: passage + "&pool_max_conns=8"}, config())
	second := dial(t, postgres.Access{URL: direct}, config())
	return parity.Fixture{
		First:  first.Backend(),
		Second: second.Backend(),
		KillSession: func(t parity.T, id lock.SessionID) {
			t.Helper()
			kill(t, pool, id)
		},
		Partition: func(t parity.T) func() {
			t.Helper()
			proxy.Cut()
			heal := func() { proxy.Heal() }
			unreachable(t, first, "partition")
			return heal
		},
		Pause: func(t parity.T) func() {
			t.Helper()
			silent := raw(t, passage)
			if err := errors.Join(silent.Ping(t.Context()), postgres.Warm(t.Context(), first)); err != nil {
				t.Fatalf("pause: %v", err)
			}
			proxy.HoldAnswers()
			t.Cleanup(proxy.ReleaseAnswers)
			// The connections of the Store are left to the calls that are to reach the database.
			unanswered(t, silent, "pause")
			return proxy.ReleaseAnswers
		},
		Stop: func(t parity.T) {
			t.Helper()
			proxy.Cut()
			_ = first.Close()
			unreachable(t, first, "stop")
		},
	}
}

// address is the host and port of a URL.
func address(t parity.T, text string) string {
	t.Helper()
	u, err := url.Parse(text)
	if err != nil {
		t.Fatalf("read URL: %v", err)
	}
	return u.Host
}

// through is the URL that leads to the same database by way of the proxy.
func through(t parity.T, text string, proxy *testenv.Proxy) string {
	t.Helper()
	u, err := url.Parse(text)
	if err != nil {
		t.Fatalf("read URL: %v", err)
	}
	u.Host = proxy.Addr
	return u.String()
}

// unanswered proves that the database's answers do not arrive.
func unanswered(t parity.T, pool *pgxpool.Pool, hook string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	if _, err := pool.Exec(ctx, "SELECT"); err == nil {
		t.Fatalf("%s: the database still answers", hook)
	}
}

// unreachable proves that a Store cannot ask the database.
func unreachable(t parity.T, store port.Custodian, hook string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	if err := store.Ping(ctx); err == nil {
		t.Fatalf("%s: the store still answers", hook)
	}
}
