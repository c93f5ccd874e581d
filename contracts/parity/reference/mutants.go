package reference

import "slices"

// Mutant is a planted bug. Give it to [New].
type Mutant struct {
	// Name says in a few words what is wrong.
	Name string
	// Clause is the number of the clause of the suite that must fail.
	Clause string
	// plant replaces steps of a world by wrong ones.
	plant func(w *World)
}

// Mutants returns all planted bugs, group by group.
func Mutants() []Mutant {
	return slices.Concat(
		sessionMutants(), sessionEndMutants(), grantMutants(), leaseMutants(), handoffMutants(), releaseMutants(),
		operatorMutants(), auditMutants(), waitMutants(), failureMutants(),
	)
}
