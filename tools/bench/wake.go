package main

import (
	"context"
	"fmt"
	"time"

	"github.com/fencelock/fencelock/adapters/client"
	"github.com/fencelock/fencelock/tools/drills"
	"github.com/fencelock/fencelock/tools/drills/stage"
)

const (
	wakeRounds     = 500
	backgroundRate = 100 // acquire + release cycles a second: 200 writes
	sessionTTL     = 30 * time.Second
	waitLimit      = 30 * time.Second
)

// wake prints how long after a release through one server a waiter on another
// server has its grant, while other keys are written 200 times a second.
func wake(s *stage.Stage, programs *drills.Programs, store drills.Store, backend string) error {
	a, err := newParty(s, programs, store, "a")
	if err != nil {
		return err
	}
	b, err := newParty(s, programs, store, "b")
	if err != nil {
		return err
	}
	noise, stop := context.WithCancel(s.Context())
	noisy := make(chan int, 1)
	go func() { noisy <- background(noise, a) }()
	begin := time.Now()
	took, err := handovers(s.Context(), a, b)
	stop()
	cycles := <-noisy
	if err != nil {
		return err
	}
	p, err := percentilesOf(took)
	if err != nil {
		return err
	}
	fmt.Printf("release on one server to grant on another, %s, %.0f other writes/s: %s\n",
		backend, 2*float64(cycles)/time.Since(begin).Seconds(), p)
	return nil
}

// newParty starts a server over the store and opens a session on it.
func newParty(s *stage.Stage, programs *drills.Programs, store drills.Store, name string) (*client.Session, error) {
	sdk, err := client.New([]string{programs.StartServer(s, store).URL()})
	if err != nil {
		return nil, fmt.Errorf("new client: %w", err)
	}
	s.Cleanup(func() { _ = sdk.Close() })
	session, err := sdk.OpenSession(s.Context(), name, client.WithTTL(sessionTTL))
	if err != nil {
		return nil, fmt.Errorf("open session: %w", err)
	}
	return session, nil
}

// background cycles keys of its own at the fixed rate and returns how many cycles it did.
func background(ctx context.Context, session *client.Session) int {
	tick := time.NewTicker(time.Second / backgroundRate)
	defer tick.Stop()
	for cycles := 0; ; {
		select {
		case <-ctx.Done():
			return cycles
		case <-tick.C:
			held, err := session.TryAcquire(ctx, fmt.Sprintf("other/%d", cycles%50))
			if err != nil {
				continue
			}
			if _, err := held.Release(ctx); err == nil {
				cycles++
			}
		}
	}
}

// handovers passes one key from a to b again and again.
func handovers(ctx context.Context, a, b *client.Session) ([]time.Duration, error) {
	took := make([]time.Duration, 0, wakeRounds)
	for range wakeRounds {
		held, err := a.Acquire(ctx, "hot", client.WithWait(waitLimit))
		if err != nil {
			return nil, fmt.Errorf("acquire on a: %w", err)
		}
		type granted struct {
			lock *client.Lock
			at   time.Time
			err  error
		}
		got := make(chan granted, 1)
		go func() {
			next, err := b.Acquire(ctx, "hot", client.WithWait(waitLimit))
			got <- granted{next, time.Now(), err}
		}()
		// Long enough for b to stand in line; a b that does not yet only makes the figure worse.
		pause(ctx, 20*time.Millisecond)
		released := time.Now()
		if _, err := held.Release(ctx); err != nil {
			return nil, fmt.Errorf("release on a: %w", err)
		}
		next := <-got
		if next.err != nil {
			return nil, fmt.Errorf("acquire on b: %w", next.err)
		}
		took = append(took, next.at.Sub(released))
		if _, err := next.lock.Release(ctx); err != nil {
			return nil, fmt.Errorf("release on b: %w", err)
		}
	}
	return took, nil
}

func pause(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}
