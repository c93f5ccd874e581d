package judge

import (
	"fmt"
	"io"
	"strings"
)

// Finding says of one invariant whether it held.
type Finding struct {
	// Invariant is its name, such as INV-01, and Claim what it says.
	Invariant, Claim string
	// Checked is how many things were looked at, and Things what they are.
	Checked int
	Things  string
	// Violations name what broke it.
	Violations []string
}

// Holds reports whether there was something to look at and nothing wrong with it.
func (f *Finding) Holds() bool { return f.Checked > 0 && len(f.Violations) == 0 }

// violatef notes something that broke the invariant.
func (f *Finding) violatef(format string, args ...any) {
	f.Violations = append(f.Violations, fmt.Sprintf(format, args...))
}

// Judge returns one finding for each invariant, in their order.
func Judge(e Evidence) []Finding {
	return []Finding{
		oneMutator(e), oneTransfer(e), ledgerBalances(e), tokensRise(e),
		nothingBelowFence(e), grantsExclude(e), nothingUngranted(e), terminalStays(e),
	}
}

// Sound reports whether all invariants hold.
func Sound(findings []Finding) bool {
	for i := range findings {
		if !findings[i].Holds() {
			return false
		}
	}
	return true
}

// Broken returns the names of the invariants that something violated.
func Broken(findings []Finding) []string {
	var names []string
	for _, f := range findings {
		if len(f.Violations) > 0 {
			names = append(names, f.Invariant)
		}
	}
	return names
}

// shown is how many violations of one invariant are printed.
const shown = 5

// Print writes a line for each finding, and the first violations.
func Print(w io.Writer, findings []Finding) error {
	for _, f := range findings {
		word := "holds"
		switch {
		case len(f.Violations) > 0:
			word = "BROKEN"
		case f.Checked == 0:
			word = "NOT SHOWN"
		}
		lines := []string{fmt.Sprintf("  %s  %-42s %-9s  %d %s", f.Invariant, f.Claim, word, f.Checked, f.Things)}
		for i, v := range f.Violations {
			if i == shown {
				lines = append(lines, fmt.Sprintf("          and %d more", len(f.Violations)-shown))
				break
			}
			lines = append(lines, "          "+v)
		}
		if _, err := fmt.Fprintln(w, strings.Join(lines, "\n")); err != nil {
			return fmt.Errorf("print findings: %w", err)
		}
	}
	return nil
}
