package postgres_test

import (
	"context"
	"net/url"
	"testing"
	"time"

	"github.com/fencelock/fencelock/adapters/postgres"
	"github.com/fencelock/fencelock/contracts/parity"
	"github.com/fencelock/fencelock/core/lock"
	"github.com/fencelock/fencelock/core/port"
	"github.com/fencelock/fencelock/tools/testenv"
)

func TestParity(t *testing.T) { parity.RunParity(t, parity.Harness{New: newFixture}) }

// newFixture binds the parity suite: hooks, and nothing else.
func newFixture(t parity.T) parity.Fixture {
	t.Helper()
	direct := testenv.Postgres(tempT{t}).Database(tempT{t})
	proxy := testenv.NewProxy(tempT{t}, address(t, direct))
	pool := raw(t, direct)
	first := dial(t, postgres.Access{URL: through(t, direct, proxy)}, config())
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
			proxy.HoldAnswers()
			t.Cleanup(proxy.ReleaseAnswers)
			unreachable(t, first, "pause")
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

// unreachable proves that a Store cannot ask the database.
func unreachable(t parity.T, store port.Custodian, hook string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	if err := store.Ping(ctx); err == nil {
		t.Fatalf("%s: the store still answers", hook)
	}
}
