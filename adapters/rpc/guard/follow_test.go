package guard_test

import (
	"context"
	"io"
	"iter"
	"net/http"
	"testing"
	"time"

	"github.com/fencelock/fencelock/adapters/rpc/guard"
	"github.com/fencelock/fencelock/core/fence"
	"github.com/fencelock/fencelock/core/lock"
)

// TestAGateFollowsRevocations: its resources are called as their keys are. A write that has been let in does not hold up
// the mark, and is not disturbed by it.
func TestAGateFollowsRevocations(t *testing.T) {
	t.Parallel()
	marks := newMemory()
	writing, ending := make(chan struct{}, 1), make(chan struct{})
	h := http.NewServeMux()
	h.Handle("POST /accounts/{account}", guard.NewMiddleware(fence.Unsigned{}, keyOf, guard.WithMarks(guard.NewGate(marks), fence.NotBelow))(
		http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			writing <- struct{}{}
			<-ending
			_, _ = io.WriteString(w, "written")
		})))
	first := make(chan int, 1)
	go func() { first <- post(t, h, "1", "33").Code }()
	<-writing

	ctx, stop := context.WithCancel(t.Context())
	raised := make(chan lock.Token, 1)
	f := fence.Follower{
		Revocations: func(context.Context) iter.Seq2[lock.Revocation, error] {
			return func(yield func(lock.Revocation, error) bool) {
				yield(lock.Revocation{Key: newKey(t, "payout:1"), PreviousToken: 33, Floor: 40}, nil)
			}
		},
		Resources: func(key lock.Key) []string { return []string{key.String()} },
		Marks:     marks,
		Report:    func(_ string, floor lock.Token, _ error) { raised <- floor },
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		f.Run(ctx)
	}()
	select {
	case floor := <-raised:
		if floor != 40 {
			t.Errorf("raised to %d", floor)
		}
	case <-time.After(patience):
		t.Error("the mark waits for a write that is going on")
	}
	stop()
	<-ended

	close(ending)
	if code := <-first; code != http.StatusOK {
		t.Errorf("the write that was let in before: %d", code)
	}
	refuses(t, "the revoked holder", post(t, h, "1", "33"), http.StatusPreconditionFailed, "FENCED_OUT")
	if next := post(t, h, "1", "41"); next.Code != http.StatusOK {
		t.Errorf("the next holder: %d %s", next.Code, next.Body)
	}
}
