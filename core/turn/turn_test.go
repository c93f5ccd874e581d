package turn_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/fencelock/fencelock/core/turn"
)

func TestOneAtATime(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) { // no goroutine outlives it
		var turns turn.Turns
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
		if users, names := turns.At("a"); users != 0 || names != 0 {
			t.Errorf("%d users and %d names are kept", users, names)
		}
	})
}

func TestWhoCannotWaitHoldsNothing(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var turns turn.Turns
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
		if users, names := turns.At("a"); users != 0 || names != 0 {
			t.Errorf("%d users and %d names are kept", users, names)
		}
	})
}

func TestTheTurnGoesToWhoHasWaitedLongest(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var turns turn.Turns
		const waiters = 3
		done, err := turns.Take(t.Context(), "a")
		if err != nil {
			t.Fatal(err)
		}
		given, next := make(chan int), make(chan struct{})
		for i := range waiters {
			go func() {
				done, err := turns.Take(t.Context(), "a")
				if err != nil {
					t.Error(err)
					return
				}
				given <- i
				<-next
				done()
			}()
			synctest.Wait()
		}
		if users, names := turns.At("a"); users != waiters+1 || names != 1 {
			t.Errorf("%d users of %d names", users, names)
		}
		select {
		case i := <-given:
			t.Fatalf("%d has the turn while another has it", i)
		default:
		}
		done()
		for want := range waiters {
			if got := <-given; got != want {
				t.Errorf("%d has the turn, want %d", got, want)
			}
			next <- struct{}{}
		}
		synctest.Wait()
		if users, names := turns.At("a"); users != 0 || names != 0 {
			t.Errorf("%d users and %d names are kept", users, names)
		}
	})
}
