package parity

import (
	"context"

	"github.com/fencelock/fencelock/core/lock"
	"github.com/fencelock/fencelock/core/port"
)

// T is the part of testing.TB that clauses use, so that the suite can also be run against
// planted bugs and be seen to fail.
type T interface {
	Helper()
	Context() context.Context
	Cleanup(func())
	Logf(format string, args ...any)
	Errorf(format string, args ...any)
	Fatalf(format string, args ...any)
	Failed() bool
}

// Harness binds the suite to one store. New returns a fixture over a namespace or prefix of
// its own, so that clauses run in parallel; it registers its clean-up with t.
type Harness struct {
	New func(t T) Fixture
}

// Fixture is one isolated place in a store, seen by two clients, as two lock servers would see it.
// Every hook proves that it had its effect before it returns.
type Fixture struct {
	// First and Second are two backends over the same keys.
	First, Second port.Backend
	// KillSession ends a session out of band, as the store itself would. Mandatory.
	KillSession func(t T, id lock.SessionID)
	// Partition cuts First off from the store, both ways, until heal; Second still reaches it.
	Partition func(t T) (heal func())
	// Pause lets the calls of First reach the store, but holds back the answers
	// until resume.
	Pause func(t T) (resume func())
	// Stop ends First as abruptly as the death of its server would.
	Stop func(t T)
}
