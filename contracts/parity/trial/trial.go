package trial

import (
	"context"
	"fmt"
	"runtime"
	"strings"
	"sync"

	"github.com/fencelock/fencelock/contracts/parity"
)

// Outcome is what became of a case.
type Outcome struct {
	// Complaints are what the case, or the harness, has to say against the store. A case ends with its first one.
	Complaints []string
	// Excused is the error of the store that a complaint was about and that excuses it: the case was not judged to its
	// end. Nil if there was none.
	Excused error
}

// Failed reports whether there is a complaint that nothing excuses.
func (o Outcome) Failed() bool { return len(o.Complaints) > 0 }

// Run runs a case as a test of its own, whose context ends with it, and returns when all that it has registered is cleaned up. A
// complaint is excused if one of its arguments is an error for which excuse holds; nil excuses none.
func Run(ctx context.Context, h parity.Harness, clause, name string, excuse func(error) bool) Outcome {
	ctx, cancel := context.WithCancel(ctx)
	t := &judge{ctx: ctx, excuse: excuse}
	apart(func() { parity.Run(t, h, clause, name) })
	cancel()
	t.cleanUp()
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.outcome
}

// judge is a parity.T that notes complaints.
type judge struct {
	ctx    context.Context //nolint:containedctx // a test hands its context out
	excuse func(error) bool

	mu       sync.Mutex
	outcome  Outcome
	cleanups []func()
}

func (t *judge) Helper()                  {}
func (t *judge) Context() context.Context { return t.ctx }
func (t *judge) Logf(string, ...any)      {}

func (t *judge) Errorf(format string, args ...any) { t.complain(format, args) }
func (t *judge) Fatalf(format string, args ...any) { t.complain(format, args) }

// complain ends the case. What it would say after its first complaint may only follow from that.
func (t *judge) complain(format string, args []any) {
	t.note(format, args)
	runtime.Goexit()
}

func (t *judge) note(format string, args []any) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, arg := range args {
		if err, ok := arg.(error); ok && t.excuse != nil && t.excuse(err) {
			t.outcome.Excused = err
			return
		}
	}
	line, _, _ := strings.Cut(fmt.Sprintf(format, args...), "\n")
	t.outcome.Complaints = append(t.outcome.Complaints, line)
}

// Failed implements parity.T.
func (t *judge) Failed() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.outcome.Failed()
}

// Cleanup implements parity.T.
func (t *judge) Cleanup(f func()) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.cleanups = append(t.cleanups, f)
}

// cleanUp calls what was registered, the last first. One that complains ends there; the others are called all the same.
func (t *judge) cleanUp() {
	for {
		t.mu.Lock()
		n := len(t.cleanups)
		if n == 0 {
			t.mu.Unlock()
			return
		}
		last := t.cleanups[n-1]
		t.cleanups = t.cleanups[:n-1]
		t.mu.Unlock()
		apart(last)
	}
}

// apart calls f in a goroutine of its own, which a complaint ends.
func apart(f func()) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		f()
	}()
	<-done
}
