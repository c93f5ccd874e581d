package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fencelock/fencelock/adapters/client"
	"github.com/fencelock/fencelock/tools/drills"
	"github.com/fencelock/fencelock/tools/drills/stage"
)

// grantsFor is how long each number of callers is measured, after a tenth of it that does not count.
const grantsFor = 10 * time.Second

// grants prints how many cycles of acquire and release callers do in a second, each with a session and a key of its own, through
// one server and one client.
func grants(s *stage.Stage, programs *drills.Programs, store drills.Store, backend string) error {
	server := programs.StartServer(s, store)
	sdk, err := client.New([]string{server.URL()})
	if err != nil {
		return fmt.Errorf("new client: %w", err)
	}
	s.Cleanup(func() { _ = sdk.Close() })
	for _, callers := range []int{1, 16, 64} {
		rate, p, err := cycles(s.Context(), sdk, callers)
		if err != nil {
			return err
		}
		fmt.Printf("acquire and release of own keys, %s, %d callers: %.0f/s  a cycle takes %s\n", backend, callers, rate, p)
	}
	return nil
}

// cycles lets the callers work and returns their cycles per second, and how long one took.
func cycles(ctx context.Context, sdk *client.Client, callers int) (float64, percentiles, error) {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	var (
		counting atomic.Bool
		all      sync.WaitGroup
		took     = make([][]time.Duration, callers)
		failed   = make([]error, callers)
	)
	for i := range callers {
		session, err := sdk.OpenSession(ctx, fmt.Sprintf("caller-%d", i), client.WithTTL(sessionTTL))
		if err != nil {
			stop()
			all.Wait()
			return 0, percentiles{}, fmt.Errorf("open session: %w", err)
		}
		all.Go(func() {
			defer func() { _, _ = session.Close(context.WithoutCancel(ctx)) }()
			took[i], failed[i] = cycle(ctx, session, fmt.Sprintf("own/%d", i), &counting)
		})
	}
	pause(ctx, grantsFor/10)
	counting.Store(true)
	begun := time.Now()
	pause(ctx, grantsFor)
	counting.Store(false)
	measured := time.Since(begun)
	stop()
	all.Wait()
	var joined []time.Duration
	for _, some := range took {
		joined = append(joined, some...)
	}
	if err := errors.Join(failed...); err != nil {
		return 0, percentiles{}, err
	}
	p, err := percentilesOf(joined)
	return float64(len(joined)) / measured.Seconds(), p, err
}

// cycle acquires and releases one key until the context ends, and returns how long each cycle took while counting.
func cycle(ctx context.Context, session *client.Session, key string, counting *atomic.Bool) ([]time.Duration, error) {
	var took []time.Duration
	for {
		begun := time.Now()
		held, err := session.TryAcquire(ctx, key)
		if err == nil {
			_, err = held.Release(ctx)
		}
		if ctx.Err() != nil {
			return took, nil //nolint:nilerr // the time is over, and the error says so
		}
		if err != nil {
			return took, fmt.Errorf("cycle of %s: %w", key, err)
		}
		if counting.Load() {
			took = append(took, time.Since(begun))
		}
	}
}
