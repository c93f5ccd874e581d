package history_test

import (
	"slices"
	"testing"
	"time"

	"github.com/fencelock/fencelock/contracts/parity/history"
	"github.com/fencelock/fencelock/contracts/parity/reference"
)

const patience = 30 * time.Second

// TestNoFalseAlarm: what the right store answers is legal, whatever its clients do.
func TestNoFalseAlarm(t *testing.T) {
	t.Parallel()
	var total history.Report
	const histories = 1000
	for seed := range uint64(histories) {
		report, err := history.Check(simulate(t, small, seed), patience)
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
	t.Logf("%d histories, %d operations, %d unknown, %d grants",
		histories, total.Operations, total.Unknown, total.Grants)
	if total.Unknown < total.Operations/100 || total.Grants < total.Operations/50 {
		t.Error("too quiet to mean anything")
	}
}

// TestManyClientsOnOneKey: a long history with many open calls is decided.
func TestManyClientsOnOneKey(t *testing.T) {
	t.Parallel()
	for seed := range uint64(3) {
		report, err := history.Check(simulate(t, play{actors: 8, acts: 100, keys: 1}, seed), patience)
		if err != nil || len(report.Undecided) > 0 {
			t.Errorf("seed %d: %+v, %v", seed, report, err)
		}
	}
}

// visible are the planted bugs that callers' answers can betray: those about safety. That something
// ends too late, wakes nobody or is missing from a listing, the suite's clauses show.
func visible() []string {
	return []string{
		"double grant", "re-grant while held", "re-entrant grant", "retry without request id",
		"request ids are shared by sessions", "acknowledged, then lost", "fails open",
		"token not bumped on a new grant", "token reused after a session's death", "extend changes the token",
		"stale release", "release by anyone", "second release answers true",
		"grant to a dead session", "renewal of a dead session", "death before the guarantee is over",
		"guarantee beyond what the store gives", "open answers another ttl than it grants",
		"death frees all locks but one", "stale read of a session's locks",
		"extend moves the end earlier", "extend of a grant that is over succeeds", "a lapsed holder may extend", "a lapsed holder may release",
		"handoff keeps the token", "handoff frees the key first", "handoff to a dead session",
		"handoff of a grant that is over",
		"abandon withdraws another request", "abandon withdraws nothing",
		"floor not above the condemned token", "token not above the floor", "revoke leaves the grant",
		"compare-and-revoke ignores the token", "revoking a free key succeeds",
		"lost answer reported as lost grant", "lost answer reported as not carried out",
	}
}

// TestPlantedBugsAreCaught: of a batch of histories of a broken store, at least one is refused.
func TestPlantedBugsAreCaught(t *testing.T) {
	t.Parallel()
	const batch = 300
	mutants := reference.Mutants()
	for _, name := range visible() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			i := slices.IndexFunc(mutants, func(m reference.Mutant) bool { return m.Name == name })
			if i < 0 {
				t.Fatal("there is no such bug")
			}
			for seed := range uint64(batch) {
				if _, err := history.Check(simulate(t, small, seed, mutants[i]), patience); err != nil {
					t.Logf("caught in history %d", seed+1)
					return
				}
			}
			t.Errorf("%d histories of a store with this bug were found legal", batch)
		})
	}
}

// TestSilentBugsRaiseNoAlarm: bugs that change no answer leave legal histories.
func TestSilentBugsRaiseNoAlarm(t *testing.T) {
	t.Parallel()
	for _, m := range reference.Mutants() {
		if m.Clause < "WAIT" {
			continue
		}
		for seed := range uint64(8) {
			if _, err := history.Check(simulate(t, small, seed, m), patience); err != nil {
				t.Errorf("%s, seed %d: %v", m.Name, seed, err)
			}
		}
	}
}
