package parity

import (
	"strings"
	"testing"
)

// clause is one numbered promise of the package documentation and the cases
// that show it.
type clause struct {
	number string
	slug   string
	cases  []example
}

// example is one scenario of a clause, run on a fixture of its own.
type example struct {
	name string
	run  func(s *stage)
}

func (c clause) name() string { return c.number + "_" + c.slug }

// Names lists the subtests of [RunParity], one per clause, in order.
func Names() []string {
	var names []string
	for _, c := range clauses() {
		names = append(names, c.name())
	}
	return names
}

// RunParity checks every clause against the store behind the harness, in
// parallel, each case on a fixture of its own.
func RunParity(t *testing.T, h Harness) {
	t.Helper()
	for _, c := range clauses() {
		t.Run(c.name(), func(t *testing.T) {
			t.Parallel()
			for _, e := range c.cases {
				t.Run(e.name, func(t *testing.T) {
					t.Parallel()
					e.run(newStage(t, h))
				})
			}
		})
	}
}

// Cases lists the cases of one clause, named by its number or its full name.
func Cases(clause string) []string {
	var names []string
	for _, e := range find(clause).cases {
		names = append(names, e.name)
	}
	return names
}

// Run checks one case of a clause, so that a planted bug can be seen to fail it.
func Run(t T, h Harness, clause, name string) {
	t.Helper()
	for _, e := range find(clause).cases {
		if e.name == name {
			e.run(newStage(t, h))
			return
		}
	}
	t.Fatalf("the suite has no case %q of a clause %q", name, clause)
}

// find returns a clause by its number or its full name; one without cases if there is none.
func find(name string) clause {
	number, _, _ := strings.Cut(name, "_")
	for _, c := range clauses() {
		if c.number == number {
			return c
		}
	}
	return clause{}
}
