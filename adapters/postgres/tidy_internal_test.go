package postgres

import (
	"context"
	"errors"
)

// The statements of tidying, for tests that carry them out step by step. Each takes arguments as [Store.ReapExpired]
// gives them.
var (
	BuryAll     = buryAll
	EndLeases   = endLeases
	EndStrays   = endStrays
	DropEntries = dropEntries
)

// The statements of listings.
var (
	ListGrants      = listGrants
	ListRevocations = listRevocations
)

// TidyArgs are those of a statement that is told of the time.
func TidyArgs(s *Store) []any { return s.clock.reading().args() }

// TidyBatch is how many rows one takes.
const TidyBatch = tidyBatch

// Reap is what a Store does each second.
func Reap(ctx context.Context, s *Store) (int, error) { return s.reap(ctx) }

// Listen makes a Store listen that [DialIdle] has opened.
func Listen(s *Store) { s.work.Go(s.listen) }

// DialIdle opens a Store that does nothing on its own: it neither listens nor tidies.
func DialIdle(ctx context.Context, access Access, cfg Config) (*Store, error) {
	s := &Store{report: func(Incident) {}, clock: newDBClock(cfg.Clock)}
	var err error
	if s.pools, err = openPools(ctx, access); err != nil {
		return nil, err
	}
	s.gate = newGate(s.pools.work.Config().MaxConns)
	s.life, s.end = context.WithCancel(context.WithoutCancel(ctx))
	s.beats, s.waiters, s.feed = newBeats(s), newHub(s), newFeed(s)
	if err = migrate(ctx, s.pools); err == nil {
		err = s.check(ctx)
	}
	if err == nil {
		s.watermark, err = newGuard(ctx, s, cfg.WatermarkFile)
	}
	if err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}
