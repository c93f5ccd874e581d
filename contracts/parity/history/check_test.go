package history_test

import (
	"slices"
	"testing"
	"time"

	"github.com/fencelock/fencelock/contracts/parity/history"
	"github.com/fencelock/fencelock/contracts/parity/reference"
)

const patience = 20 * time.Second

// TestNoFalseAlarm: what the right store answers is legal, whatever its clients do.
func TestNoFalseAlarm(t *testing.T) {
	t.Parallel()
	var total history.Report
	for seed := range uint64(1000) {
		operations := simulate(t, seed)
		report, err := history.Check(operations, patience)
		if err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		if len(report.Undecided) > 0 {
			t.Errorf("seed %d: undecided: %v", seed, report.Undecided)
		}
		total.Operations += report.Operations
		total.Unknown += report.Unknown
		total.Grants += report.Grants
	}
	t.Logf("%d operations, %d unknown, %d grants", total.Operations, total.Unknown, total.Grants)
}

// TestPlantedBugsAreCaught: a history of a broken store is refused, for every
// bug that a caller can see in what was answered.
func TestPlantedBugsAreCaught(t *testing.T) {
	t.Parallel()
	const batch = 20
	for _, m := range reference.Mutants() {
		t.Run(m.Name, func(t *testing.T) {
			t.Parallel()
			caught := 0
			for seed := range uint64(batch) {
				if _, err := history.Check(simulate(t, seed, m), patience); err != nil {
					caught++
				}
			}
			t.Logf("caught in %d of %d histories", caught, batch)
		})
	}
	_ = slices.Contains[[]string]
}
