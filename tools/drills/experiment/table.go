package experiment

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"
)

// cell is a position and a site, with the runs of both.
type cell struct {
	position Position
	site     Site
	verdicts map[Verdict]int
	seen     []string
	troubles []string
}

// cells sorts the runs.
func cells(runs []Run) []cell {
	var all []cell
	for _, position := range Positions() {
		for _, site := range Sites() {
			c := cell{position: position, site: site, verdicts: map[Verdict]int{}}
			for _, r := range runs {
				if r.Position == position && r.Site == site {
					c.add(r)
				}
			}
			all = append(all, c)
		}
	}
	return all
}

func (c *cell) add(r Run) {
	verdict, why := r.Judge()
	c.verdicts[verdict]++
	if verdict != AsExpected {
		c.troubles = append(c.troubles, fmt.Sprintf("run %d, %v, site %s: %v: %s", r.Number, r.Position, r.Site, verdict, why))
	}
	if text := r.String(); verdict != Inconclusive && !slices.Contains(c.seen, text) {
		c.seen = append(c.seen, text)
	}
}

// Report is all runs, and what the judge said of each stack after its last one.
type Report struct {
	// Each is how many runs of each position there should be.
	Each int
	Runs []Run
	// Broken are the names of the invariants that were violated in each position.
	Broken map[Position][]string
}

// ExpectBroken names the invariants that late calls must break in a position, and no other. What is protected everywhere breaks none;
// elsewhere the judge is seen to see.
func ExpectBroken(p Position) []string {
	switch p {
	case Position{Payment: true, Rail: true}:
		return nil
	case Position{Payment: true}:
		return []string{"INV-02", "INV-03", "INV-05"}
	case Position{Rail: true}:
		return []string{"INV-01", "INV-03", "INV-05", "INV-08"}
	default:
		return []string{"INV-01", "INV-02", "INV-03", "INV-05", "INV-08"}
	}
}

// Passed reports whether there are as many runs of each position and site as there should be, all as expected, and
// the invariants are broken and unbroken as they must be.
func (r Report) Passed() bool {
	for _, c := range cells(r.Runs) {
		if r.Each == 0 || c.verdicts[AsExpected] != r.Each || len(c.troubles) > 0 {
			return false
		}
	}
	for _, p := range Positions() {
		if broken, judged := r.Broken[p]; !judged || !slices.Equal(broken, ExpectBroken(p)) {
			return false
		}
	}
	return true
}

// Print writes the table of all positions and sites, what each position did to the invariants, and each run that was not as
// expected.
func (r Report) Print(w io.Writer) error {
	lines := []string{fmt.Sprintf("%-24s %-7s %-12s %s", "fencing", "site", "as expected", "what was seen")}
	var troubles []string
	for _, c := range cells(r.Runs) {
		lines = append(lines, fmt.Sprintf("%-24v %-7s %-12s %s", c.position, c.site,
			fmt.Sprintf("%d of %d", c.verdicts[AsExpected], r.Each), strings.Join(c.seen, "; ")))
		troubles = append(troubles, c.troubles...)
		if missing := r.Each - c.verdicts[AsExpected] - len(c.troubles); missing > 0 {
			troubles = append(troubles, fmt.Sprintf("%v, site %s: %d runs are missing", c.position, c.site, missing))
		}
	}
	lines = append(lines, "", fmt.Sprintf("%-24s %s", "fencing", "invariants broken"))
	for _, p := range Positions() {
		broken, judged := r.Broken[p]
		lines = append(lines, fmt.Sprintf("%-24v %s", p, named(broken)))
		switch {
		case !judged:
			troubles = append(troubles, fmt.Sprintf("%v: the invariants were not judged", p))
		case !slices.Equal(broken, ExpectBroken(p)):
			troubles = append(troubles, fmt.Sprintf("%v: invariants broken: %s; expected: %s", p, named(broken), named(ExpectBroken(p))))
		}
	}
	if _, err := fmt.Fprintln(w, strings.Join(append(lines, troubles...), "\n")); err != nil {
		return fmt.Errorf("print table: %w", err)
	}
	return nil
}

// named is a list of names, or none.
func named(names []string) string { return cmp.Or(strings.Join(names, " "), "none") }
