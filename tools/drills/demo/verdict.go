package demo

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/fencelock/fencelock/tools/drills/judge"
	"github.com/fencelock/fencelock/tools/drills/metrics"
	"github.com/fencelock/fencelock/tools/drills/stack"
)

// Faults say what is not as it must be; there are none in a healthy system.
func (r Result) Faults() []string {
	var faults []string
	for _, p := range r.Payouts {
		if p.State != judge.Posted {
			faults = append(faults, fmt.Sprintf("payout %s is %s", p.ID, p.State))
		}
	}
	if len(r.Payouts) == 0 {
		faults = append(faults, "there are no payouts")
	}
	if got := len(r.Evidence.Transfers); got != len(r.Payouts) {
		faults = append(faults, fmt.Sprintf("%d requests at the rail for %d payouts", got, len(r.Payouts)))
	}
	for _, f := range r.Findings {
		if !f.Holds() {
			faults = append(faults, f.Invariant+" does not hold")
		}
	}
	if len(r.Findings) == 0 {
		faults = append(faults, "nothing was judged")
	}
	faults = append(faults, NotZero("first scrape", r.First)...)
	return append(faults, NotZero("last scrape", r.Last)...)
}

// zeroes are the series that must be exactly 0 in a healthy system.
func zeroes() []string {
	return []string{
		`lock_fenced_out_total{resource="account"}`, `lock_fenced_out_total{resource="ledger"}`,
		`lock_fenced_out_total{resource="rail"}`, `rail_duplicate_attempted_total`,
	}
}

// NotZero names the series that are not 0 in any of the scrapes though they must be, and those that none exposes.
func NotZero(when string, scrapes map[string]metrics.Scrape) []string {
	var faults []string
	for _, series := range zeroes() {
		there := false
		for _, program := range slices.Sorted(maps.Keys(scrapes)) {
			value, ok := scrapes[program].Value(series)
			there = there || ok
			if value != 0 {
				faults = append(faults, fmt.Sprintf("%s: %s of %s is %v", when, series, program, value))
			}
		}
		if !there {
			faults = append(faults, fmt.Sprintf("%s: nobody exposes %s", when, series))
		}
	}
	return faults
}

// Print writes the verdict for people.
func (r Result) Print(w io.Writer) error {
	states := stack.States(r.Payouts)
	lines := []string{"", fmt.Sprintf("payouts by state, after %.1f s:", r.Took.Seconds())}
	for _, s := range slices.Sorted(maps.Keys(states)) {
		lines = append(lines, fmt.Sprintf("  %-14s %d", s, states[s]))
	}
	sum, paid := int64(0), int64(0)
	for _, g := range r.Evidence.Groups {
		sum += g.Sum
		paid += g.Paid
	}
	lines = append(lines,
		fmt.Sprintf("requests at the rail, one for each payout: %d", len(r.Evidence.Transfers)),
		fmt.Sprintf("ledger: %d payouts entered, %d paid out; the sum of all entries, which must be 0: %d", len(r.Evidence.Groups), paid, sum),
		"counters that must be 0:                    first scrape  last scrape")
	for _, series := range zeroes() {
		lines = append(lines, fmt.Sprintf("  %-41s %12s %12s", series, shown(r.First, series), shown(r.Last, series)))
	}
	lines = append(lines, "invariants:")
	if _, err := fmt.Fprintln(w, strings.Join(lines, "\n")); err != nil {
		return fmt.Errorf("print verdict: %w", err)
	}
	if err := judge.Print(w, r.Findings); err != nil {
		return err
	}
	last := "\nSOUND: each payout was paid once, the books balance, all invariants hold"
	if faults := r.Faults(); len(faults) > 0 {
		last = "\nNOT SOUND:\n  " + strings.Join(faults, "\n  ")
	}
	if _, err := fmt.Fprintln(w, last); err != nil {
		return fmt.Errorf("print verdict: %w", err)
	}
	return nil
}

// shown is the sum of a series over all programs that expose it.
func shown(scrapes map[string]metrics.Scrape, series string) string {
	sum, there := 0.0, false
	for _, s := range scrapes {
		value, ok := s.Value(series)
		sum, there = sum+value, there || ok
	}
	if !there {
		return "missing"
	}
	return fmt.Sprintf("%g", sum)
}
