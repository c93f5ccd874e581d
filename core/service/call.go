package service

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/fencelock/fencelock/core/lock"
)

// Bounds of the pause after a retryable error of the store.
const (
	firstBackoff = 20 * time.Millisecond
	lastBackoff  = time.Second
)

// noAnswer is what a caller reads whose call has ended first, mostly by its time.
const noAnswer = "the server or the store did not answer in time"

// ask makes one store call, bounded by the caller's context and the store's
// time limit, and returns only errors of the closed set.
func ask[T any](ctx context.Context, s *Service, call func(context.Context) (T, error)) (T, error) {
	if err := ctx.Err(); err != nil {
		var zero T
		return zero, lock.Contention(noAnswer, false, err)
	}
	return askFor(ctx, s.cfg.StoreTimeout, call)
}

// askFor calls the store for so long at most.
func askFor[T any](ctx context.Context, limit time.Duration, call func(context.Context) (T, error)) (T, error) {
	bounded, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	value, err := call(bounded)
	return value, inClosedSet(ctx, err)
}

// inClosedSet makes err one of the closed set. Where the caller's context has ended,
// its error stays reachable with errors.Is.
func inClosedSet(ctx context.Context, err error) error {
	switch {
	case err == nil:
		return nil
	case lock.CodeOf(err) == "":
		return lock.Contention("the store did not answer", true, err)
	case ctx.Err() != nil && lock.IsRetryable(err) && !errors.Is(err, ctx.Err()):
		return lock.Contention(noAnswer, lock.IsAmbiguous(err), errors.Join(ctx.Err(), err))
	}
	return err
}

// between draws a duration in [low, high].
func between(low, high time.Duration) time.Duration {
	if high <= low {
		return low
	}
	return low + rand.N(high-low+1) //nolint:gosec // jitter, no secret
}

// backoff is the jittered pause after the given number of failures in a row.
func backoff(failures int) time.Duration {
	limit := lastBackoff
	if failures < 6 {
		limit = min(limit, firstBackoff<<failures)
	}
	return between(limit/2, limit)
}

// draining is the answer to calls that would wait on a server about to stop.
func errDraining(unknown bool) error {
	return lock.Contention("this server is draining", unknown, nil)
}

// errLeft is the answer to a call whose caller has left.
func errLeft(ctx context.Context, unknown bool) error {
	return lock.Contention(noAnswer, unknown, ctx.Err())
}
