package experiment

import (
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
	if text := r.Outcome.String(); verdict != Inconclusive && !slices.Contains(c.seen, text) {
		c.seen = append(c.seen, text)
	}
}

// Passed reports whether there are as many runs of each position and site as there should be, all as expected.
func Passed(runs []Run, each int) bool {
	for _, c := range cells(runs) {
		if each == 0 || c.verdicts[AsExpected] != each || len(c.troubles) > 0 {
			return false
		}
	}
	return true
}

// Print writes the table of all positions and sites, and below it each run that was not as expected.
func Print(w io.Writer, runs []Run, each int) error {
	lines := []string{fmt.Sprintf("%-24s %-7s %-12s %s", "fencing", "site", "as expected", "what was seen")}
	var troubles []string
	for _, c := range cells(runs) {
		lines = append(lines, fmt.Sprintf("%-24v %-7s %-12s %s", c.position, c.site,
			fmt.Sprintf("%d of %d", c.verdicts[AsExpected], each), strings.Join(c.seen, "; ")))
		troubles = append(troubles, c.troubles...)
		if missing := each - c.verdicts[AsExpected] - len(c.troubles); missing > 0 {
			troubles = append(troubles, fmt.Sprintf("%v, site %s: %d runs are missing", c.position, c.site, missing))
		}
	}
	if _, err := fmt.Fprintln(w, strings.Join(append(lines, troubles...), "\n")); err != nil {
		return fmt.Errorf("print table: %w", err)
	}
	return nil
}
