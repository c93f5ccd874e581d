package parity_test

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/fencelock/fencelock/contracts/parity"
	"github.com/fencelock/fencelock/contracts/parity/reference"
)

// planted is a harness with a bug and the clause that must fail on it.
type planted struct {
	name, clause string
	harness      parity.Harness
}

// TestMutants: every planted bug fails the clause that names it. All run at
// once, since many of them can only be caught by waiting.
func TestMutants(t *testing.T) {
	t.Parallel()
	var bugs []planted
	for _, m := range reference.Mutants() {
		bugs = append(bugs, planted{m.Name, m.Clause, referenceHarness(m)})
	}
	bugs = append(bugs, wrappedBugs()...)
	if len(bugs) < 14 {
		t.Errorf("%d planted bugs, want at least 14", len(bugs))
	}
	trials := make([]*trial, len(bugs))
	var group sync.WaitGroup
	for i, bug := range bugs {
		group.Go(func() { trials[i] = try(t, bug.harness, bug.clause) })
	}
	group.Wait()
	var table strings.Builder
	for i, bug := range bugs {
		fmt.Fprintf(&table, "\n%-8s %-44s %s", bug.clause, bug.name, trials[i].verdict())
		if !slices.ContainsFunc(parity.Names(), func(name string) bool { return strings.HasPrefix(name, bug.clause+"_") }) {
			t.Errorf("%s names the clause %s, which does not exist", bug.name, bug.clause)
		}
		if !trials[i].Failed() {
			t.Errorf("%s passes although %s is planted", bug.clause, bug.name)
		}
	}
	t.Log(table.String())
}
