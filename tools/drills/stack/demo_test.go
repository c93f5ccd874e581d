package stack_test

import (
	"crypto/sha256"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/fencelock/fencelock/tools/drills/demo"
	"github.com/fencelock/fencelock/tools/drills/metrics"
	"github.com/fencelock/fencelock/tools/drills/stack"
)

// TestTheSystemIsSoundOnBothBackends is the happy path, of the same programs and the same flags: only lock.backend of the lock
// server differs. The executors are one file, whose content is compared before and after.
func TestTheSystemIsSoundOnBothBackends(t *testing.T) {
	before := executorSum(t)
	results := map[string]demo.Result{}
	for _, backend := range backends() {
		t.Run(backend, func(t *testing.T) {
			r := demo.Run(t, programs, demo.Options{
				Backend: backend, Accounts: 50, Payouts: 500, Executors: 3, Concurrency: 8,
			}, t.Output())
			must(t, "print", r.Print(t.Output()))
			if faults := r.Faults(); len(faults) > 0 {
				t.Errorf("not sound:\n%s", strings.Join(faults, "\n"))
			}
			results[backend] = r
		})
		if sum := executorSum(t); sum != before {
			t.Errorf("%s ran another executor", backend)
		}
	}
	etcd, postgres := results[stack.Etcd], results[stack.Postgres]
	sameNames(t, "first", etcd.First, postgres.First)
	sameNames(t, "last", etcd.Last, postgres.Last)
}

func executorSum(t *testing.T) [sha256.Size]byte {
	t.Helper()
	data, err := os.ReadFile(stack.ExecutorBinary(t, programs))
	must(t, "read executor", err)
	return sha256.Sum256(data)
}

// sameNames compares what the programs expose on the two backends. The label backend is the only difference.
func sameNames(t *testing.T, when string, etcd, postgres map[string]metrics.Scrape) {
	t.Helper()
	if len(etcd) != 7 || len(postgres) != 7 {
		t.Errorf("%s scrape of %d and %d programs; want 7", when, len(etcd), len(postgres))
	}
	for program, scrape := range etcd {
		if a, b := series(scrape), series(postgres[program]); !slices.Equal(a, b) {
			t.Errorf("%s scrape of %s: on etcd\n%s\non postgres\n%s", when, program, strings.Join(a, "\n"), strings.Join(b, "\n"))
		}
		for name := range scrape {
			if strings.Contains(name, `backend="`) && program != "lockserver" {
				t.Errorf("%s knows of backends: %s", program, name)
			}
		}
	}
}

// series are all but those of runtime and process, without the values of the label backend.
func series(s metrics.Scrape) []string {
	ours := s.Names()
	var all []string
	for name := range s {
		metric, _, _ := strings.Cut(name, "{")
		if slices.Contains(ours, metric) {
			all = append(all, strings.NewReplacer(`backend="etcd"`, "backend", `backend="postgres"`, "backend").Replace(name))
		}
	}
	slices.Sort(all)
	return all
}
