package parity_test

import (
	"context"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"testing"

	"github.com/fencelock/fencelock/contracts/parity"
)

// trial is a parity.T that notes failures, so that a planted bug can be seen
// to fail a clause without failing the test that watches.
type trial struct {
	ctx context.Context //nolint:containedctx // a test hands its context out
	end context.CancelFunc

	mu        sync.Mutex
	complaint string // the first
	failed    bool
	cleanups  []func()
}

// try runs one case of a clause as a test of its own and returns what became of it.
func try(t *testing.T, h parity.Harness, clause, name string) *trial {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	r := &trial{ctx: ctx, end: cancel}
	done := make(chan struct{})
	go func() { // ends with the case
		defer close(done)
		defer r.cleanUp()
		defer cancel()
		parity.Run(r, h, clause, name)
	}()
	<-done
	return r
}

func (r *trial) cleanUp() {
	for {
		r.mu.Lock()
		n := len(r.cleanups)
		if n == 0 {
			r.mu.Unlock()
			return
		}
		last := r.cleanups[n-1]
		r.cleanups = r.cleanups[:n-1]
		r.mu.Unlock()
		last()
	}
}

func (r *trial) note(failed bool, format string, args []any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !failed {
		return
	}
	if !r.failed {
		r.complaint, _, _ = strings.Cut(fmt.Sprintf(format, args...), "\n")
	}
	r.failed = true
	r.end() // one complaint is enough: nothing that follows need be waited for
}

// verdict is the first line of the first complaint.
func (r *trial) verdict() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.complaint
}

func (r *trial) Helper()                           {}
func (r *trial) Context() context.Context          { return r.ctx }
func (r *trial) Logf(format string, args ...any)   { r.note(false, format, args) }
func (r *trial) Errorf(format string, args ...any) { r.note(true, format, args) }
func (r *trial) Fatalf(format string, args ...any) { r.note(true, format, args); runtime.Goexit() }

func (r *trial) Cleanup(f func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.cleanups = append(r.cleanups, f)
}

func (r *trial) Failed() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.failed
}
