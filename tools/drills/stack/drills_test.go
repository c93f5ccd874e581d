package stack_test

import (
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/fencelock/fencelock/adapters/client"
	"github.com/fencelock/fencelock/tools/drills/demo"
	"github.com/fencelock/fencelock/tools/drills/experiment"
	"github.com/fencelock/fencelock/tools/drills/outage"
)

// TestFencingExperiment is the experiment, once in each position. `make fencing-experiment` makes it often.
func TestFencingExperiment(t *testing.T) {
	t.Parallel()
	for _, backend := range backends() {
		t.Run(backend, func(t *testing.T) {
			t.Parallel()
			report, err := experiment.Make(t.Context(), programs, backend, 1, t.Output())
			must(t, "make the experiment", err)
			must(t, "print", report.Print(t.Output()))
			if !report.Passed() {
				t.Error("not as expected")
			}
		})
	}
}

// untilGivenUp is longer than a client tries to reach a lock server: an executor that went on without a lock would do so by then.
const untilGivenUp = client.DefaultCallTimeout + 5*time.Second

// TestNothingIsExecutedWithoutALockServer is the outage drill, shorter. `make outage-drill` makes it longer.
func TestNothingIsExecutedWithoutALockServer(t *testing.T) {
	t.Parallel()
	for _, how := range []syscall.Signal{syscall.SIGTERM, syscall.SIGKILL} {
		t.Run(how.String(), func(t *testing.T) {
			t.Parallel()
			for _, backend := range backends() {
				t.Run(backend, func(t *testing.T) {
					t.Parallel()
					r := outage.Run(t, programs, outage.Options{
						Size: demo.Options{Backend: backend, Accounts: 10, Payouts: 60, Executors: 2, Concurrency: 4},
						How:  how, For: untilGivenUp,
					}, t.Output())
					must(t, "print", r.Print(t.Output()))
					if faults := r.Faults(); len(faults) > 0 {
						t.Errorf("not sound:\n%s", strings.Join(faults, "\n"))
					}
				})
			}
		})
	}
}
