package postgres_test

import (
	"os"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/fencelock/fencelock/adapters/postgres"
	"github.com/fencelock/fencelock/contracts/parity"
	"github.com/fencelock/fencelock/contracts/parity/trial"
	"github.com/fencelock/fencelock/tools/testenv"
)

// TestParityThroughAPooler: no call relies on the connection of the one before. The pooler has far fewer connections than its
// clients, so the next call often meets another one.
func TestParityThroughAPooler(t *testing.T) {
	t.Parallel()
	pooled := testenv.PgBouncer(t, testenv.Postgres(t).URL, "default_pool_size=4")
	onSites(t, everyCase, func(t *testing.T, s *site, clause, name string) {
		t.Helper()
		judge(t, clause, name, func(t parity.T) parity.Fixture {
			direct, pooler := testenv.NewProxy(tempT{t}, address(t, s.url)), testenv.NewProxy(tempT{t}, address(t, pooled))
			return s.fixture(t, ways{
				first:   postgres.Access{URL: through(t, s.url, pooler), ListenURL: through(t, s.url, direct), Pooler: true},
				second:  postgres.Access{URL: toHost(t, s.url, address(t, pooled)), ListenURL: s.url, Pooler: true},
				proxies: []*testenv.Proxy{direct, pooler},
			}).Fixture
		})
	})
}

// TestParityThroughAPoolerWithoutAListener: where there is no direct way to the database either, a Store says so when it starts, and
// looks again and again for what it cannot hear.
func TestParityThroughAPoolerWithoutAListener(t *testing.T) {
	t.Parallel()
	pooled := testenv.PgBouncer(t, testenv.Postgres(t).URL, "default_pool_size=4")
	onSites(t, unheard, func(t *testing.T, s *site, clause, name string) {
		t.Helper()
		judge(t, clause, name, func(t parity.T) parity.Fixture {
			pooler := testenv.NewProxy(tempT{t}, address(t, pooled))
			var said atomic.Int64
			cfg := config()
			cfg.Report = func(i postgres.Incident) {
				if i.Kind == postgres.NotListening {
					said.Add(1)
				}
			}
			f := s.fixture(t, ways{
				first:   postgres.Access{URL: through(t, s.url, pooler), Pooler: true},
				second:  postgres.Access{URL: toHost(t, s.url, address(t, pooled)), Pooler: true},
				proxies: []*testenv.Proxy{pooler}, config: cfg,
			}).Fixture
			if said.Load() < 2 {
				t.Fatalf("a Store does not say that it hears nothing")
			}
			return f
		})
	})
}

// envEverything has all cases run that pass without a listener, and not only those in which something waits, or is told something:
// the others are no different with one.
const envEverything = "FENCELOCK_TEST_EVERYTHING"

// unheard reports whether a case is of interest where nothing is heard. One is not: who waits at another server has to come
// just when the key is free, and whoever only looks now and then does so by luck.
func unheard(clause, name string) bool {
	if name == "no waiter of another server starves" {
		return false
	}
	if os.Getenv(envEverything) != "" {
		return true
	}
	full := clause + "/" + name
	for _, prefix := range []string{
		"SESS-03/a dead session is told so while others wait", "SESS-09/a session that dies in a queue", "LOCK-12", "REV-03", "WAIT-", "FAIL-",
	} {
		if strings.HasPrefix(full, prefix) {
			return true
		}
	}
	return false
}

// judge fails the test unless the case passes.
func judge(t *testing.T, clause, name string, fixture func(parity.T) parity.Fixture) {
	t.Helper()
	for _, complaint := range trial.Run(t.Context(), parity.Harness{New: fixture}, clause, name, nil).Complaints {
		t.Error(complaint)
	}
}
