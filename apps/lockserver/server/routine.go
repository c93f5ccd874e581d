package server

import (
	"context"
	"sync"
	"time"
)

// routines are goroutines that do something on a beat until stop.
type routines struct {
	ctx    context.Context //nolint:containedctx // the life of the goroutines
	cancel context.CancelFunc
	wg     sync.WaitGroup
}

func newRoutines(ctx context.Context) *routines {
	r := &routines{}
	r.ctx, r.cancel = context.WithCancel(context.WithoutCancel(ctx))
	return r
}

// every runs do at once and then on each beat. A slow run delays the next.
func (r *routines) every(beat time.Duration, do func(context.Context)) {
	r.wg.Go(func() {
		ticker := time.NewTicker(beat)
		defer ticker.Stop()
		for {
			do(r.ctx)
			select {
			case <-ticker.C:
			case <-r.ctx.Done():
				return
			}
		}
	})
}

// stop ends all goroutines and waits for them.
func (r *routines) stop() {
	r.cancel()
	r.wg.Wait()
}
