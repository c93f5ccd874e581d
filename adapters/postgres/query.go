package postgres

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/fencelock/fencelock/core/lock"
)

const (
	// maxRounds bounds how often a call looks again because what it saw could not be decided upon.
	maxRounds = 8
	// shortPatience is the wait for a row that is in use for a moment, by another server.
	shortPatience = 100 * time.Millisecond
	// longPatience is one wait of a call that has found its row locked for longer, by whomever.
	longPatience = time.Second
	// callTimeout bounds a call whose caller has not.
	callTimeout = 10 * time.Second
)

// query is a statement about one key.
type query[R any] struct {
	key   lock.Key
	asker lock.SessionID
	// sql begins with [locked] or [looked].
	sql string
	// args are $9 and the following; nil for none.
	args func() []any
	// create makes the row of a key that has none, for a session that lives.
	create bool
	// sight is the part of R that says what the statement saw.
	sight func(*R) *sight
}

// run carries a statement out until what it saw is beyond doubt, and returns also how long its answer may have been under way.
// A session in doubt is ended, or found to live, in between.
func run[R any](ctx context.Context, s *Store, q query[R]) (*R, time.Duration, error) {
	ctx, cancel := s.call(ctx)
	defer cancel()
	leave, err := s.gate.enter(ctx, q.key)
	if err != nil {
		return nil, 0, err
	}
	defer leave()
	var gone int64
	for range maxRounds {
		r, trip, err := once(ctx, s, q, gone)
		if err != nil {
			return nil, 0, err
		}
		v := q.sight(r)
		switch {
		case v.AskerExpired != nil:
			err = s.bury(ctx, *v.AskerExpired)
		case v.Unknown && q.create && !v.AskerDead:
			err = s.createEntry(ctx, q.key, q.asker)
		case v.Doubted == nil:
			return r, trip, nil
		case v.DoubtedMissing:
			gone = *v.Doubted
		default:
			err = s.bury(ctx, *v.Doubted)
		}
		if err != nil {
			return nil, 0, err
		}
	}
	return nil, 0, errCrowded()
}

// once sends a statement. Where somebody holds the row for longer it goes on in the slow lane, so that the
// calls for such keys never have all connections.
func once[R any](ctx context.Context, s *Store, q query[R], gone int64) (*R, time.Duration, error) {
	r, trip, err := send(ctx, s, q, gone, shortPatience)
	if !isLocked(err) {
		return r, trip, err
	}
	for {
		leave, err := s.gate.slow(ctx)
		if err != nil {
			return nil, 0, err
		}
		r, trip, err := send(ctx, s, q, gone, longPatience)
		leave()
		if !isLocked(err) {
			return r, trip, err
		}
	}
}

func send[R any](ctx context.Context, s *Store, q query[R], gone int64, patience time.Duration) (*R, time.Duration, error) {
	var asker *string
	if !q.asker.IsZero() {
		secret := q.asker.Reveal()
		asker = &secret
	}
	args := append(s.clock.reading().args(), milliseconds(patience), q.key.Namespace(), q.key.Name(), asker, gone)
	if q.args != nil {
		args = append(args, q.args()...)
	}
	return ask[R](ctx, s, s.pools.work, writes, q.sql, args...)
}

// ask sends one statement with one row in its answer, over a connection of the pool, and returns also how long the answer may
// have been under way.
func ask[R any](ctx context.Context, s *Store, pool *pgxpool.Pool, did access, sql string, args ...any) (*R, time.Duration, error) {
	if err := ctx.Err(); err != nil {
		return nil, 0, lock.Contention("the call ended before it was sent", false, err)
	}
	conn, err := pool.Acquire(ctx)
	if err != nil {
		return nil, 0, translate(err, reads)
	}
	defer conn.Release()
	sent := s.clock.elapsed()
	rows, err := conn.Query(ctx, sql, args...)
	if err != nil {
		return nil, 0, translate(err, did)
	}
	r, err := pgx.CollectExactlyOneRow(rows, pgx.RowToAddrOfStructByName[R])
	if err != nil {
		return nil, 0, translate(err, did)
	}
	return r, s.clock.elapsed() - sent, nil
}

// createEntry makes the row of a key, without a grant: a token is taken only under the lock of a row that is there.
func (s *Store) createEntry(ctx context.Context, key lock.Key, asker lock.SessionID) error {
	_, err := s.pools.work.Exec(ctx, `
INSERT INTO fencelock.lock_entry (namespace, key, idle_since)
SELECT $1, $2, clock_timestamp() FROM fencelock.lock_session s WHERE s.secret = $3::uuid AND s.ended_at IS NULL
ON CONFLICT DO NOTHING`, key.Namespace(), key.Name(), asker.Reveal())
	if err != nil {
		// A row without a grant is nothing that the outcome could depend on.
		return translate(err, reads)
	}
	return nil
}

// bury ends a session that has expired, unless a heartbeat has come before. What rests on
// the death of a session rests on this: that it has ended is final.
func (s *Store) bury(ctx context.Context, session int64) error {
	r := s.clock.reading()
	_, err := s.pools.work.Exec(ctx, `
WITH patience AS MATERIALIZED (SELECT set_config('lock_timeout', $4, true)),
session AS MATERIALIZED (
  SELECT s.* FROM patience CROSS JOIN fencelock.lock_session s WHERE s.id = $5 FOR UPDATE OF s
)
UPDATE fencelock.lock_session s SET ended_at = clock_timestamp()
  FROM session x
 WHERE s.id = x.id AND x.ended_at IS NULL AND `+over("x.renewed_at", "x.expires_at"),
		append(r.args(), milliseconds(longPatience), session)...)
	if err != nil {
		return translate(err, reads)
	}
	return nil
}

// isLocked reports whether a statement gave up because somebody else holds the row.
func isLocked(err error) bool { return errors.Is(err, errRowLocked) }

// errCrowded says that others kept changing what the call is about.
func errCrowded() error { return lock.Contention("too many others act on the same key", false, nil) }
