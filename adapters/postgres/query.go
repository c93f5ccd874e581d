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
	// cleanupTimeout bounds what a call does after its end.
	cleanupTimeout = time.Second
)

// query is a statement about one key.
type query[R any] struct {
	key   lock.Key
	asker lock.SessionID
	// did is writes where sql begins with [locked], and reads where it begins with [looked].
	did access
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
	var gone int64
	for range maxRounds {
		r, trip, err := once(ctx, s, q, gone)
		if err != nil {
			return nil, 0, err
		}
		v := q.sight(r)
		switch {
		case v.AskerBusy:
			err = s.awaitSession(ctx, q.asker)
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

// once carries a statement out once.
func once[R any](ctx context.Context, s *Store, q query[R], gone int64) (r *R, trip time.Duration, err error) {
	if q.did == reads {
		return send(ctx, s, q, gone, 0)
	}
	err = s.patiently(ctx, q.key, func(patience time.Duration) (err error) {
		r, trip, err = send(ctx, s, q, gone, patience)
		return err
	})
	return r, trip, err
}

func send[R any](ctx context.Context, s *Store, q query[R], gone int64, patience time.Duration) (*R, time.Duration, error) {
	var asker *string
	if !q.asker.IsZero() {
		if q.did == writes {
			s.gate.respect(ctx, q.asker)
		}
		secret := q.asker.Reveal()
		asker = &secret
	}
	args := append(s.clock.reading().args(), milliseconds(patience), q.key.Namespace(), q.key.Name(), asker, gone)
	if q.args != nil {
		args = append(args, q.args()...)
	}
	return ask[R](ctx, s, s.pools.work, q.did, q.sql, args...)
}

// patiently does what waits for a row of the place: for a moment first, and then, where somebody holds the row for longer, in the
// slow lane until the row is free or ctx ends. It holds no connection between two tries.
func (s *Store) patiently(ctx context.Context, place any, do func(patience time.Duration) error) error {
	leave, err := s.gate.enter(ctx, place)
	if err != nil {
		return err
	}
	defer leave()
	err = do(shortPatience)
	for isLocked(err) {
		leave, full := slow(ctx, s.gate.lane)
		if full != nil {
			return full
		}
		err = do(longPatience)
		leave()
	}
	return err
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
	if did == writes {
		err = confirm(conn.Conn())
	}
	return r, s.clock.elapsed() - sent, err
}

// createEntry makes the row of a key, without a grant: a token is taken only under the lock of a row that is there. Nothing
// that a caller can see depends on its outcome.
func (s *Store) createEntry(ctx context.Context, key lock.Key, asker lock.SessionID) error {
	return s.patiently(ctx, key, func(patience time.Duration) error {
		_, err := s.pools.work.Exec(ctx, `
WITH patience AS MATERIALIZED (SELECT set_config('lock_timeout', $1, true))
INSERT INTO fencelock.lock_entry (namespace, key, idle_since)
SELECT $2, $3, clock_timestamp() FROM patience CROSS JOIN fencelock.lock_session s
 WHERE s.secret = $4::uuid AND s.ended_at IS NULL
ON CONFLICT DO NOTHING`, milliseconds(patience), key.Namespace(), key.Name(), asker.Reveal())
		return translate(err, reads)
	})
}

// bury ends a session that has expired, unless a heartbeat has come before. What rests on
// the death of a session rests on this: that it has ended is final.
func (s *Store) bury(ctx context.Context, session int64) error {
	return s.patiently(ctx, session, func(patience time.Duration) error {
		_, err := s.pools.work.Exec(ctx, `
WITH patience AS MATERIALIZED (SELECT set_config('lock_timeout', $4, true)),
session AS MATERIALIZED (
  SELECT `+sessionColumns+`
    FROM patience CROSS JOIN fencelock.lock_session s WHERE s.id = $5 FOR UPDATE OF s
)
UPDATE fencelock.lock_session s SET ended_at = clock_timestamp()
  FROM session x
 WHERE s.id = x.id AND x.ended_at IS NULL AND `+over("x.renewed_at", "x.expires_at"),
			append(s.clock.reading().args(), milliseconds(patience), session)...)
		return translate(err, reads)
	})
}

// awaitSession waits until nobody else is about to change the session's row. Who holds the row of a key never waits
// for that of a session: others would wait with it, and a heartbeat could not come before it.
func (s *Store) awaitSession(ctx context.Context, session lock.SessionID) error {
	return s.patiently(ctx, session, func(patience time.Duration) error {
		_, err := s.pools.work.Exec(ctx, `
WITH patience AS MATERIALIZED (SELECT set_config('lock_timeout', $1, true))
SELECT FROM patience CROSS JOIN fencelock.lock_session s WHERE s.secret = $2::uuid FOR SHARE OF s`,
			milliseconds(patience), session.Reveal())
		return translate(err, reads)
	})
}

// transact does something in a transaction, and commits it unless that fails. Only the commit can be ambiguous, so do translates
// its errors as those of reads.
func (s *Store) transact(ctx context.Context, do func(tx pgx.Tx) error) error {
	conn, err := s.pools.work.Acquire(ctx)
	if err != nil {
		return translate(err, reads)
	}
	defer conn.Release()
	tx, err := conn.BeginTx(ctx, pgx.TxOptions{IsoLevel: pgx.ReadCommitted})
	if err != nil {
		return translate(err, reads)
	}
	if err := do(tx); err != nil {
		// The caller may be gone, and its connection is to be of use to others.
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanupTimeout)
		defer cancel()
		_ = tx.Rollback(ctx)
		return err
	}
	if err := tx.Commit(ctx); err != nil {
		return translate(err, writes)
	}
	return confirm(conn.Conn())
}

// isLocked reports whether a statement gave up because somebody else holds the row.
func isLocked(err error) bool { return errors.Is(err, errRowLocked) }

// errCrowded says that others kept changing what the call is about.
func errCrowded() error { return lock.Contention("too many others act on the same key", false, nil) }
