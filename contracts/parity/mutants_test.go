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

// coreAlone are the cases that ask the core and no store, so that no bug behind the ports can
// turn them red. They have been seen red with the checks in the core taken out.
func coreAlone() []string {
	return []string{
		"SESS-02/a heartbeat received long ago reaches no store",
		"SESS-03/a malformed id is invalid",
		"LOCK-11/bad keys and namespaces are invalid",
		"LOCK-11/bad requests are invalid before any store is asked",
	}
}

// TestMutants: every planted bug fails the clause that names it, and every
// case of every clause has been seen to fail on a planted bug: an assertion that was never red
// is decoration. All run at once, since many can only be caught by waiting.
func TestMutants(t *testing.T) {
	t.Parallel()
	var bugs []planted
	for _, m := range reference.Mutants() {
		bugs = append(bugs, planted{m.Name, m.Clause, referenceHarness(m)})
	}
	bugs = append(bugs, wrappedBugs()...)
	trials := make([]map[string]*trial, len(bugs))
	var group sync.WaitGroup
	var mutex sync.Mutex
	for i, bug := range bugs {
		trials[i] = map[string]*trial{}
		for _, name := range parity.Cases(bug.clause) {
			group.Go(func() {
				r := try(t, bug.harness, bug.clause, name)
				mutex.Lock()
				defer mutex.Unlock()
				trials[i][name] = r
			})
		}
	}
	group.Wait()
	red := map[string]bool{}
	var table strings.Builder
	for i, bug := range bugs {
		caught := ""
		for _, name := range parity.Cases(bug.clause) {
			if r := trials[i][name]; r.Failed() {
				caught += "\n\t\t" + name + ": " + r.verdict()
				red[bug.clause+"/"+name] = true
			}
		}
		if caught == "" {
			t.Errorf("%s passes although %s is planted", bug.clause, bug.name)
		}
		fmt.Fprintf(&table, "\n%s\t%s%s", bug.clause, bug.name, caught)
	}
	t.Log(table.String())
	for _, clause := range parity.Names() {
		number, _, _ := strings.Cut(clause, "_")
		for _, name := range parity.Cases(number) {
			full := number + "/" + name
			if red[full] == slices.Contains(coreAlone(), full) {
				t.Errorf("%s: seen red %v, which is not what is expected of it", full, red[full])
			}
		}
	}
}
