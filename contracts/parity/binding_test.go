package parity_test

import (
	"github.com/fencelock/fencelock/contracts/parity"
	"github.com/fencelock/fencelock/contracts/parity/reference"
	"github.com/fencelock/fencelock/core/lock"
)

// referenceHarness binds the suite to a fresh world per fixture, with the
// mutants' bugs planted, usually none.
func referenceHarness(mutants ...reference.Mutant) parity.Harness {
	return parity.Harness{New: func(t parity.T) parity.Fixture {
		world := reference.New(mutants...)
		t.Cleanup(world.Close)
		first, second := world.Client(), world.Client()
		return parity.Fixture{
			First:  first.Backend(),
			Second: second.Backend(),
			KillSession: func(t parity.T, id lock.SessionID) {
				t.Helper()
				if !world.KillSession(id) {
					t.Fatalf("kill session: it was not alive")
				}
			},
			Partition: func(t parity.T) func() {
				t.Helper()
				heal := first.Partition()
				t.Cleanup(heal)
				if err := first.Ping(t.Context()); err == nil {
					t.Fatalf("partition: the store still answers")
				}
				return heal
			},
			Pause: func(t parity.T) func() {
				t.Helper()
				resume := first.Pause()
				t.Cleanup(resume)
				return resume
			},
			Stop: func(t parity.T) {
				t.Helper()
				first.Stop()
				if err := first.Ping(t.Context()); err == nil {
					t.Fatalf("stop: the client still answers")
				}
			},
		}
	}}
}
