package postgres

import (
	"context"
	"math/rand/v2"
	"strconv"
	"time"
)

const (
	// tidyEvery is the mean pause between two looks at what is over, and at the database's clock.
	tidyEvery = time.Second
	// tidyShare is how many times as long as a round took the pause after it is at least, and maxTidyPause the longest: a big
	// database, or a busy one, is tidied less often.
	tidyShare, maxTidyPause = 20, 30 * time.Second
	// sweepEvery is the mean pause between two looks at all rows of keys.
	sweepEvery = time.Minute
	// tidyBatch is how many rows a statement changes at most; the locks on them are held for a moment only.
	tidyBatch = 500
)

// upToABatch limits a statement, by a number: from a parameter the database would not see how little it has to read.
var upToABatch = "LIMIT " + strconv.Itoa(tidyBatch)

// buryAll ends sessions that have expired. A row that is locked is left: who holds it is about to renew the session, or to grant it
// something. What another server has changed in the meantime is judged as it is now.
//
// The first condition is a cheap one for the many that are alive: no index helps here, since one on expires_at
// would have every heartbeat write to it.
var buryAll = `
WITH expired AS MATERIALIZED (
  SELECT s.id FROM fencelock.lock_session s
   WHERE s.ended_at IS NULL AND (s.expires_at <= $1::timestamptz OR s.renewed_at > statement_timestamp())
     AND ` + over("s.renewed_at", "s.expires_at") + `
   ` + upToABatch + `
     FOR UPDATE SKIP LOCKED
)
UPDATE fencelock.lock_session s SET ended_at = clock_timestamp() FROM expired x WHERE s.id = x.id`

// endLeases ends grants whose leases have lapsed, and tells the servers.
var endLeases = `
WITH entry AS MATERIALIZED (
  SELECT e.namespace, e.key, e.session, e.token FROM fencelock.lock_entry e
   WHERE e.session IS NOT NULL AND e.lease IS NOT NULL
     AND (e.lease_until <= $1::timestamptz OR e.leased_at > statement_timestamp())
     AND ` + over("e.leased_at", "e.lease_until") + `
   ` + upToABatch + `
     FOR UPDATE SKIP LOCKED
),
ended AS (
  UPDATE fencelock.lock_entry e SET ` + endGrant + ` FROM entry x WHERE e.namespace = x.namespace AND e.key = x.key
  RETURNING x.namespace, x.key, x.session, x.token
)
SELECT ` + tellLapsed("ended") + ` FROM ended`

// endOrphans ends the grants of sessions that have ended, from the number $1 on. That is final, so the sessions need no lock.
var endOrphans = `
WITH entry AS MATERIALIZED (
  SELECT e.namespace, e.key, e.session
    FROM fencelock.lock_session s JOIN fencelock.lock_entry e ON e.session = s.id
   WHERE s.ended_at IS NOT NULL AND s.id >= $1
   ORDER BY s.id ` + upToABatch + `
     FOR UPDATE OF e SKIP LOCKED
),
ended AS (
  UPDATE fencelock.lock_entry e SET ` + endGrant + ` FROM entry x WHERE e.namespace = x.namespace AND e.key = x.key
  RETURNING x.session
)
SELECT count(*) AS ended, max(session) AS last FROM ended`

// dropSessions deletes sessions that ended a while ago and that no row refers to. They stay dead: one that is
// not known is no other than one that has ended. Until then the news of their end can be told.
var dropSessions = `
WITH ended AS MATERIALIZED (
  SELECT s.id FROM fencelock.lock_session s
   WHERE s.ended_at < statement_timestamp() - interval '1 minute'
     AND NOT EXISTS (SELECT FROM fencelock.lock_entry e WHERE e.session = s.id)
   ` + upToABatch + `
     FOR UPDATE OF s SKIP LOCKED
)
DELETE FROM fencelock.lock_session s USING ended x WHERE s.id = x.id`

// endStrays ends grants that a raised floor has ended, and those of sessions whose rows somebody has deleted. Row and session are
// looked for in one snapshot: a session that is not in it is gone. The row may be another grant's once it is
// locked, so it is compared.
var endStrays = `
WITH stray AS MATERIALIZED (
  SELECT e.namespace, e.key, e.session, e.token FROM fencelock.lock_entry e CROSS JOIN fencelock.lock_meta m
   WHERE e.session IS NOT NULL
     AND (e.token <= m.floor OR NOT EXISTS (SELECT FROM fencelock.lock_session s WHERE s.id = e.session))
   ` + upToABatch + `
),
entry AS MATERIALIZED (
  SELECT e.namespace, e.key FROM stray x JOIN fencelock.lock_entry e ON e.namespace = x.namespace AND e.key = x.key
   WHERE e.session = x.session AND e.token = x.token
     FOR UPDATE OF e SKIP LOCKED
)
UPDATE fencelock.lock_entry e SET ` + endGrant + ` FROM entry x WHERE e.namespace = x.namespace AND e.key = x.key`

// dropEntries deletes the rows of keys that nobody has used for long. The floor of a revocation is kept for ever.
//
// The last token of the key goes with the row, and yet the next one is higher. A token is a number of the one sequence of all
// keys, taken while the key's row is locked, and the row is deleted under that lock. So every token of the
// key was taken before the deletion; and the next one is taken under the lock of a new row, which cannot be made before. Who
// waited for the old row finds none and begins anew.
var dropEntries = `
WITH idle AS MATERIALIZED (
  SELECT e.namespace, e.key FROM fencelock.lock_entry e
   WHERE e.session IS NULL AND e.floor = 0 AND e.idle_since < statement_timestamp() - interval '1 hour'
   ` + upToABatch + `
     FOR UPDATE SKIP LOCKED
)
DELETE FROM fencelock.lock_entry e USING idle x WHERE e.namespace = x.namespace AND e.key = x.key`

// ReapExpired implements port.LockStore: it ends what has run out, and takes away what nobody can miss. Any number of
// servers may do so at once; each skips what another is at. It returns how many sessions and grants it found over.
func (s *Store) ReapExpired(ctx context.Context) (int, error) {
	over, err := s.reap(ctx)
	if err != nil {
		return over, err
	}
	strays, err := s.sweep(ctx)
	return over + strays, err
}

// reap is the part of [Store.ReapExpired] that does not look at all rows of keys.
func (s *Store) reap(ctx context.Context) (over int, err error) {
	sessions, err := s.inBatches(ctx, buryAll, true)
	if err != nil {
		return sessions, err
	}
	leases, err := s.inBatches(ctx, endLeases, true)
	if over = sessions + leases; err != nil {
		return over, err
	}
	orphans, err := s.endOrphans(ctx)
	if over += orphans; err != nil {
		return over, err
	}
	_, err = s.inBatches(ctx, dropSessions, false)
	return over, err
}

// endOrphans goes through the sessions in the order of their numbers: to begin with the first for each batch would be to look again
// at all that are done.
func (s *Store) endOrphans(ctx context.Context) (total int, err error) {
	type batch struct {
		Ended int
		Last  *int64
	}
	for from := int64(0); ; {
		rows, err := list[batch](ctx, s, endOrphans, from)
		if err != nil {
			return total, err
		}
		b := rows[0]
		if total += b.Ended; b.Ended < tidyBatch {
			return total, nil
		}
		from = deref(b.Last)
	}
}

// sweep is the rest.
func (s *Store) sweep(ctx context.Context) (over int, err error) {
	if over, err = s.inBatches(ctx, endStrays, false); err != nil {
		return over, err
	}
	_, err = s.inBatches(ctx, dropEntries, false)
	return over, err
}

// inBatches carries a statement out until it finds less than a batch; timed ones are told of the time.
func (s *Store) inBatches(ctx context.Context, sql string, timed bool) (total int, err error) {
	for {
		n, err := s.batch(ctx, sql, timed)
		total += n
		if err != nil || n < tidyBatch {
			return total, err
		}
	}
}

func (s *Store) batch(ctx context.Context, sql string, timed bool) (int, error) {
	ctx, cancel := s.call(ctx)
	defer cancel()
	var args []any
	if timed {
		args = s.clock.reading().args()
	}
	tag, err := s.pools.work.Exec(ctx, sql, args...)
	if err != nil {
		return 0, translate(err, reads) // whatever it did had to be done
	}
	return int(tag.RowsAffected()), nil
}

// tidy follows the database's clock and tidies until the Store ends.
func (s *Store) tidy() {
	round, sweep := s.clock.elapsed(), s.clock.elapsed()+jitter(sweepEvery) // when they are due
	failing := false
	for s.rest(jitter(tidyEvery)) {
		err := s.watchClock()
		if began := s.clock.elapsed(); err == nil && began >= round {
			if _, err = s.reap(s.life); err == nil && began >= sweep {
				_, err = s.sweep(s.life)
				sweep = began + jitter(sweepEvery)
			}
			now := s.clock.elapsed()
			round = now + min((now-began)*tidyShare, maxTidyPause)
		}
		if err != nil && !failing && s.life.Err() == nil {
			s.report(Incident{Kind: TidyFailed, Err: err})
		}
		failing = err != nil
	}
}

// jitter draws a pause around the mean, so that servers do not act in step.
func jitter(mean time.Duration) time.Duration { return mean/2 + rand.N(mean) } //nolint:gosec // jitter, no secret

// watchClock compares the database's clock with our own.
func (s *Store) watchClock() error {
	ctx, cancel := s.call(s.life)
	defer cancel()
	conn, err := s.pools.work.Acquire(ctx)
	if err != nil {
		return translate(err, reads)
	}
	defer conn.Release()
	sent := s.clock.elapsed()
	var shown time.Time
	if err := conn.QueryRow(ctx, "SELECT clock_timestamp()").Scan(&shown); err != nil {
		return translate(err, reads)
	}
	s.noteClock(sent, s.clock.elapsed(), shown)
	return nil
}
