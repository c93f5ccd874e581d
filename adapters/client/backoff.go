package client

import (
	"context"
	"math/rand/v2"
	"time"
)

// backoffDoublings is where the growth of a backoff ends.
const backoffDoublings = 16

// backoff grows the range of a pause with every failure and draws from all of
// it (full jitter), so that clients which failed together do not return together.
type backoff struct {
	base, most time.Duration
	failures   int
}

func (b *backoff) reset() { b.failures = 0 }

// next returns the pause after one more failure, at least atLeast.
func (b *backoff) next(atLeast time.Duration) time.Duration {
	limit := b.most
	if b.failures < backoffDoublings {
		limit = min(b.most, b.base<<b.failures)
	}
	b.failures++
	return atLeast + rand.N(limit) + 1 //nolint:gosec // jitter is no secret
}

// pause sleeps, or returns the context's cause if that ends first.
func pause(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return context.Cause(ctx) //nolint:wrapcheck // the reason as it is
	case <-timer.C:
		return nil
	}
}
