package postgres

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/fencelock/fencelock/core/lock"
	"github.com/fencelock/fencelock/core/port"
)

// OpenSession implements port.SessionRegistry.
func (s *Store) OpenSession(ctx context.Context, req port.OpenRequest) (lock.Session, error) {
	ctx, cancel := s.call(ctx)
	defer cancel()
	id := lock.NewSessionID()
	type opened struct{ CreatedAt time.Time }
	o, _, err := ask[opened](ctx, s, s.pools.work, writes, `
INSERT INTO fencelock.lock_session (secret, owner, ttl, created_at, renewed_at, expires_at, metadata)
SELECT $1::uuid, $2, $3::interval, t.at, t.at, t.at + $3::interval, $4::jsonb
  FROM (SELECT clock_timestamp() AS at) t
RETURNING created_at`, id.Reveal(), string(req.Owner), req.TTL, encodeMetadata(req.Metadata))
	if err != nil {
		return lock.Session{}, err
	}
	return lock.Session{ID: id, Owner: req.Owner, TTL: req.TTL, CreatedAt: o.CreatedAt, Metadata: req.Metadata}, nil
}

// closeSession ends a session unless it has ended, and tells whether it had expired before.
var closeSession = `
WITH patience AS MATERIALIZED (SELECT set_config('lock_timeout', $4, true)),
session AS MATERIALIZED (
  SELECT s.id, s.ended_at, ` + over("s.renewed_at", "s.expires_at") + ` AS expired
    FROM patience CROSS JOIN fencelock.lock_session s WHERE s.secret = $5::uuid FOR UPDATE OF s
)
UPDATE fencelock.lock_session s SET ended_at = clock_timestamp()
  FROM session x
 WHERE s.id = x.id AND x.ended_at IS NULL
RETURNING x.expired`

// countEnded counts the grants that ended with a session. It is a statement of its own, and so sees what the
// one that ended the session has waited for.
var countEnded = `
SELECT count(*)
  FROM fencelock.lock_session s JOIN fencelock.lock_entry e ON e.session = s.id CROSS JOIN fencelock.lock_meta m
 WHERE s.secret = $4::uuid AND e.token > m.floor
   AND NOT (e.lease IS NOT NULL AND ` + over("e.leased_at", "e.lease_until") + `)`

// CloseSession implements port.SessionRegistry. The end of the session is one row; it frees everything at once. A
// release that is under way meanwhile may be counted as well.
func (s *Store) CloseSession(ctx context.Context, id lock.SessionID) (int, error) {
	ctx, cancel := s.call(ctx)
	defer cancel()
	count := 0
	err := s.patiently(ctx, id, func(patience time.Duration) (err error) {
		count, err = s.closeOnce(ctx, id, patience)
		return err
	})
	return count, err
}

// closeOnce sends both statements at once, in a transaction that the database itself ends: no server that was
// frozen in its middle keeps the row locked.
func (s *Store) closeOnce(ctx context.Context, id lock.SessionID, patience time.Duration) (count int, err error) {
	conn, err := s.pools.work.Acquire(ctx)
	if err != nil {
		return 0, translate(err, reads)
	}
	defer conn.Release()
	defer s.gate.claim(id)()
	r := s.clock.reading()
	var batch pgx.Batch
	batch.Queue(closeSession, append(r.args(), milliseconds(patience), id.Reveal())...)
	batch.Queue(countEnded, append(r.args(), id.Reveal())...)
	results := conn.SendBatch(ctx, &batch)
	over := false
	err = results.QueryRow().Scan(&over)
	if errors.Is(err, pgx.ErrNoRows) {
		over, err = true, nil
	}
	if err == nil {
		err = results.QueryRow().Scan(&count)
	}
	// Only the end of the batch is the end of its transaction.
	if closing := results.Close(); err == nil {
		err = closing
	}
	switch {
	case err != nil:
		return 0, translate(err, writes)
	case over:
		count = 0
	}
	return count, confirm(conn.Conn())
}

// locksOf lists the grants of a session from one snapshot.
var locksOf = `
SELECT s.ended_at IS NOT NULL AS ended, ` + over("s.renewed_at", "s.expires_at") + ` AS expired, s.id AS session, s.owner,
       e.namespace, e.key, e.token, e.request_id, e.granted_at, e.metadata,
       e.lease, ` + left("e.leased_at", "e.lease_until") + ` AS lease_left
  FROM fencelock.lock_session s CROSS JOIN fencelock.lock_meta m
  LEFT JOIN fencelock.lock_entry e ON e.session = s.id AND e.token > m.floor
   AND NOT (e.lease IS NOT NULL AND ` + over("e.leased_at", "e.lease_until") + `)
 WHERE s.secret = $4::uuid
 ORDER BY e.namespace, e.key`

// held is one line of [locksOf].
type held struct {
	Ended, Expired   bool
	Session          int64
	Owner            string
	Namespace, Key   *string
	Token            *int64
	RequestID        *string
	GrantedAt        *time.Time
	Lease, LeaseLeft *time.Duration
	Metadata         []byte
}

// LocksOf implements port.SessionRegistry.
func (s *Store) LocksOf(ctx context.Context, id lock.SessionID) ([]lock.Grant, error) {
	ctx, cancel := s.call(ctx)
	defer cancel()
	for range maxRounds {
		sent := s.clock.elapsed()
		rows, err := s.pools.work.Query(ctx, locksOf, append(s.clock.reading().args(), id.Reveal())...)
		if err != nil {
			return nil, translate(err, reads)
		}
		lines, err := pgx.CollectRows(rows, pgx.RowToStructByName[held])
		switch {
		case err != nil:
			return nil, translate(err, reads)
		case len(lines) == 0 || lines[0].Ended:
			return nil, lock.ErrSessionDead
		case lines[0].Expired:
			if err := s.bury(ctx, lines[0].Session); err != nil {
				return nil, err
			}
		default:
			return heldGrants(lines, id, s.clock.elapsed()-sent)
		}
	}
	return nil, errCrowded()
}

func heldGrants(lines []held, session lock.SessionID, trip time.Duration) ([]lock.Grant, error) {
	var grants []lock.Grant
	for _, l := range lines {
		if l.Key == nil {
			continue // a session without a lock is one line
		}
		key, err := lock.NewKey(*l.Namespace, *l.Key)
		if err != nil {
			return nil, lock.Contention("the store holds a key that is none", false, err)
		}
		metadata, err := decodeMetadata(l.Metadata)
		if err != nil {
			return nil, err
		}
		grants = append(grants, lock.Grant{
			Key: key, Session: session, Owner: lock.Owner(l.Owner), Token: lock.Token(deref(l.Token)),
			RequestID: lock.RequestID(deref(l.RequestID)), AcquiredAt: deref(l.GrantedAt), Lease: deref(l.Lease),
			LeaseRemaining: max(deref(l.LeaseLeft)-trip, 0), Metadata: metadata,
		})
	}
	return grants, nil
}
