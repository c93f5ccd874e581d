package stack_test

import (
	"fmt"
	"os"
	"testing"

	"github.com/fencelock/fencelock/tools/drills"
	"github.com/fencelock/fencelock/tools/drills/judge"
	"github.com/fencelock/fencelock/tools/drills/stack"
)

var programs *drills.Programs

// atOnce is how many systems run at the same time, each of six or more processes. They wait for sessions to die, for
// the most part.
const atOnce = 4

func TestMain(m *testing.M) {
	os.Exit(drills.RunTests(m, atOnce, func(p *drills.Programs) { programs = p }))
}

// backends are what every drill runs on. What a drill does may not depend on which.
func backends() []string { return []string{stack.Etcd, stack.Postgres} }

// must fails the test on an error.
func must(t *testing.T, what string, err error) {
	t.Helper()
	if err != nil {
		t.Fatalf("%s: %v", what, err)
	}
}

// verdict stops the executors and judges; broken are the invariants that must be violated, and no others.
func verdict(t *testing.T, s *stack.Stack, broken ...string) judge.Evidence {
	t.Helper()
	must(t, "stop executors", s.StopExecutors())
	evidence, err := s.Evidence(t.Context())
	must(t, "collect evidence", err)
	findings := judge.Judge(evidence)
	for _, f := range findings {
		if f.Checked == 0 {
			t.Errorf("%s: there was nothing to look at", f.Invariant)
		}
	}
	if got := fmt.Sprint(judge.Broken(findings)); got != fmt.Sprint(broken) {
		t.Errorf("invariants broken: %v; want %v", got, broken)
		_ = judge.Print(t.Output(), findings)
	}
	return evidence
}

// total is a metric over all its series and all programs that run.
func total(t *testing.T, s *stack.Stack, metric string) float64 {
	t.Helper()
	scrapes, err := s.Scrape(t.Context())
	must(t, "scrape", err)
	sum := 0.0
	for _, scrape := range scrapes {
		sum += scrape.Of(metric).Sum()
	}
	return sum
}

// requests counts what the rail was asked for a payout.
func requests(e judge.Evidence, payout string) int {
	n := 0
	for _, transfer := range e.Transfers {
		if transfer.Payout == payout {
			n++
		}
	}
	return n
}

// quietly is for waits whose progress nobody reads.
func quietly(int) {}
