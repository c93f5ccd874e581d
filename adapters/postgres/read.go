package postgres

import (
	"context"

	"github.com/fencelock/fencelock/core/lock"
)

// read shows a key with its floor.
var read = looked + `
SELECT coalesce(v.floor, 0) AS floor,` + shown + `
  FROM view v`

// glimpse is what it saw.
type glimpse struct {
	sight
	Floor int64
}

// Read implements port.LockStore. What it shows as over is over for good: a grant that is past its time is ended first, since another
// server may think that it has time left. Where that cannot be done at once, it is shown.
func (s *Store) Read(ctx context.Context, key lock.Key) (lock.Info, error) {
	ctx, cancel := s.call(ctx)
	defer cancel()
	q := query[glimpse]{key: key, did: reads, sql: read}
	g, trip, err := send(ctx, s, q, 0, 0)
	if err == nil && g.past() && s.endPast(ctx, key) == nil {
		g, trip, err = send(ctx, s, q, 0, 0)
	}
	if err != nil {
		return lock.Info{}, err
	}
	info := lock.Info{Key: key, Floor: lock.Token(g.Floor)}
	if !g.Live && !g.past() {
		return info, nil
	}
	info.Held = true
	info.Grant, err = g.grant(key, trip)
	return info, err
}

// past reports whether the grant is past its time, or its session is, and nobody has ended it.
func (g *glimpse) past() bool { return !g.Live && !g.Done && !g.DoubtedMissing }

// endPast ends what is past its time at a key, unless it is renewed before.
func (s *Store) endPast(ctx context.Context, key lock.Key) error {
	ctx, cancel := context.WithTimeout(ctx, 2*shortPatience)
	defer cancel()
	_, _, err := run(ctx, s, query[ended]{
		key: key, did: writes, sql: releaseByToken, sight: (*ended).sees,
		args: func() []any { return []any{nil, int64(0)} },
	})
	return err
}
