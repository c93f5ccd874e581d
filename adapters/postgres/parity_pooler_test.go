package postgres_test

import (
	"maps"
	"slices"
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
	onSites(t, func(t *testing.T, s *site, clause, name string) {
		t.Helper()
		judge(t, clause, name, func(t parity.T) parity.Fixture {
			direct, pooler := testenv.NewProxy(tempT{t}, address(t, s.url)), testenv.NewProxy(tempT{t}, address(t, pooled))
			return s.fixture(t, ways{
				first:   postgres.Access{URL: through(t, s.url, pooler), ListenURL: through(t, s.url, direct), Pooler: true},
				second:  postgres.Access{URL: toHost(t, s.url, address(t, pooled)), ListenURL: s.url, Pooler: true},
				proxies: []*testenv.Proxy{direct, pooler},
			}).Fixture
		}, "")
	})
}

// TestParityThroughAPoolerWithoutAListener: where there is no direct way to the database either, a Store says so when it starts, and
// looks again and again for what it cannot hear.
func TestParityThroughAPoolerWithoutAListener(t *testing.T) {
	t.Parallel()
	pooled := testenv.PgBouncer(t, testenv.Postgres(t).URL, "default_pool_size=4")
	onSites(t, func(t *testing.T, s *site, clause, name string) {
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
		}, polled[clause+"/"+name])
	})
}

// polled are complaints that follow from waking by poll, and are no fault where nothing can be heard.
var polled = map[string]string{
	// The key is free for a few milliseconds between the turns of the other server. Who only looks now and then comes just then by luck.
	"WAIT-04/no waiter of another server starves": "not within 20s: a waiter on the other server has its turn",
}

// judge fails the test unless the case passes, or has nothing but that complaint.
func judge(t *testing.T, clause, name string, fixture func(parity.T) parity.Fixture, but string) {
	t.Helper()
	for _, complaint := range trial.Run(t.Context(), parity.Harness{New: fixture}, clause, name, nil).Complaints {
		if complaint == but {
			t.Logf("by poll: %s", complaint)
			continue
		}
		t.Error(complaint)
	}
}

// TestSpecialTreatmentNamesCases: else it would be for nothing.
func TestSpecialTreatmentNamesCases(t *testing.T) {
	t.Parallel()
	for _, full := range slices.Concat(slices.Collect(maps.Keys(polled)), slices.Collect(maps.Keys(strict))) {
		if clause, name, _ := strings.Cut(full, "/"); !slices.Contains(parity.Cases(clause), name) {
			t.Errorf("the suite has no %s", full)
		}
	}
}
