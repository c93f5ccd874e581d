package turn

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestOneAtATime(t *testing.T) {
	t.Parallel()
	var turns Turns
	var wg sync.WaitGroup
	inside := map[string]int{}
	var mu sync.Mutex
	for i := range 40 {
		wg.Go(func() {
			of := []string{"a", "b"}[i%2]
			done, err := turns.Take(t.Context(), of)
			if err != nil {
				t.Error(err)
				return
			}
			defer done()
			mu.Lock()
			inside[of]++
			if inside[of] != 1 {
				t.Errorf("%d at %s", inside[of], of)
			}
			mu.Unlock()
			mu.Lock()
			inside[of]--
			mu.Unlock()
		})
	}
	wg.Wait()
	if len(turns.names) != 0 {
		t.Errorf("%d names are kept", len(turns.names))
	}
}

func TestWhoCannotWaitHoldsNothing(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var turns Turns
		done, err := turns.Take(t.Context(), "a")
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		given := make(chan error)
		go func() {
			_, err := turns.Take(ctx, "a")
			given <- err
		}()
		synctest.Wait()
		cancel()
		if err := <-given; !errors.Is(err, context.Canceled) {
			t.Errorf("got %v", err)
		}
		done()
		again, err := turns.Take(t.Context(), "a")
		if err != nil {
			t.Fatal(err)
		}
		again()
		if len(turns.names) != 0 {
			t.Errorf("%d names are kept", len(turns.names))
		}
	})
}
