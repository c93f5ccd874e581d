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

// Read implements port.LockStore. It waits for nobody: a grant that is past its time is not shown, whether or not somebody has found
// that out already.
func (s *Store) Read(ctx context.Context, key lock.Key) (lock.Info, error) {
	ctx, cancel := s.call(ctx)
	defer cancel()
	g, trip, err := send(ctx, s, query[glimpse]{key: key, did: reads, sql: read}, 0, 0)
	if err != nil {
		return lock.Info{}, err
	}
	info := lock.Info{Key: key, Floor: lock.Token(g.Floor)}
	if !g.Live {
		return info, nil
	}
	info.Held = true
	info.Grant, err = g.grant(key, trip)
	return info, err
}
