package reference

// Mutant is a planted bug.
type Mutant struct {
	// Name says what is wrong, in a few words.
	Name string
	// Clause is the number of the clause that must fail.
	Clause string
	plant  func(w *World)
}
