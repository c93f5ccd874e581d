package trial_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/fencelock/fencelock/contracts/parity"
	"github.com/fencelock/fencelock/contracts/parity/reference"
	"github.com/fencelock/fencelock/contracts/parity/trial"
	"github.com/fencelock/fencelock/core/lock"
	"github.com/fencelock/fencelock/core/port"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const clause, name = "LOCK-03", "extend returning the same token"

// failing is a store of grants that extends none.
type failing struct {
	port.LockStore

	err error
}

// Extend implements port.LockStore.
func (f failing) Extend(context.Context, lock.Key, lock.SessionID, lock.Token, time.Duration) (lock.Grant, error) {
	return lock.Grant{}, f.err
}

// harness binds a sound store; extends fail with err unless that is nil, and ends are called when a case is over, the first one last.
func harness(err error, ends ...func(t parity.T)) parity.Harness {
	return parity.Harness{New: func(t parity.T) parity.Fixture {
		world := reference.New()
		t.Cleanup(world.Close)
		for _, end := range ends {
			t.Cleanup(func() { end(t) })
		}
		never := func(parity.T) func() { return func() {} }
		f := parity.Fixture{
			First: world.Client().Backend(), Second: world.Client().Backend(), Partition: never, Pause: never,
			KillSession: func(parity.T, lock.SessionID) {}, Stop: func(parity.T) {},
		}
		if err != nil {
			f.First.Locks = failing{f.First.Locks, err}
		}
		return f
	}}
}

func lost(err error) bool { return errors.Is(err, lock.ErrLost) }

func TestOutcomes(t *testing.T) {
	t.Parallel()
	for what, c := range map[string]struct {
		err    error
		excuse func(error) bool
		failed bool
	}{
		"a sound store":                 {nil, lost, false},
		"an error that excuses":         {lock.ErrLost, lost, false},
		"an error that does not excuse": {lock.ErrLost, lock.IsRetryable, true},
		"no excuse":                     {lock.ErrLost, nil, true},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			o := trial.Run(t.Context(), harness(c.err), clause, name, c.excuse)
			if o.Failed() != c.failed {
				t.Errorf("failed is %v: %+v", o.Failed(), o)
			}
			if excused := c.err != nil && !c.failed; (o.Excused != nil) != excused {
				t.Errorf("excused by %v", o.Excused)
			}
			if c.failed && (len(o.Complaints) != 1 || !strings.Contains(o.Complaints[0], c.err.Error())) {
				t.Errorf("complaints are %q, want one of %v: a case ends with its first", o.Complaints, c.err)
			}
		})
	}
}

// TestEverythingIsCleanedUp: also where the case has ended before, and where the clean-up itself complains; and that is a complaint
// whatever excuses the case.
func TestEverythingIsCleanedUp(t *testing.T) {
	t.Parallel()
	var calls []string
	call := func(name string) func(parity.T) {
		return func(t parity.T) {
			calls = append(calls, fmt.Sprintf("%s %v %v", name, t.Context().Err() != nil, t.Failed()))
		}
	}
	complain := func(t parity.T) {
		t.Errorf("left over: %s", "a thing")
		calls = append(calls, "not reached")
	}
	o := trial.Run(t.Context(), harness(lock.ErrLost, call("last"), complain, call("first")), clause, name, lost)
	if want := []string{"first true false", "last true true"}; !slices.Equal(calls, want) {
		t.Errorf("called were %q, want %q: name, context ended, failed", calls, want)
	}
	if o.Excused == nil || len(o.Complaints) != 1 || o.Complaints[0] != "left over: a thing" {
		t.Errorf("excused by %v, complaints %q", o.Excused, o.Complaints)
	}
}

func TestUnknownCaseFails(t *testing.T) {
	t.Parallel()
	if o := trial.Run(t.Context(), harness(nil), clause, "no such case", nil); !o.Failed() {
		t.Error("a case that is not there passes")
	}
}
