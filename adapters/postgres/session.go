package postgres

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/fencelock/fencelock/core/lock"
	"github.com/fencelock/fencelock/core/port"
)

const (
	// maxHeartbeatAge is the age at which a heartbeat is dropped: a server that was frozen must not
	// renew for a client that may have been told of its session's death.
	maxHeartbeatAge = time.Second
	// heartbeatPatience is the longest wait for a session's row, which grants to the session hold for a moment.
	heartbeatPatience = 250 * time.Millisecond
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

// heartbeat renews a session, or ends it where it has expired. The row is locked first: the time is taken when nobody
// else can decide about the session any more.
var heartbeat = `
WITH patience AS MATERIALIZED (SELECT set_config('lock_timeout', $4, true)),
session AS MATERIALIZED (
  SELECT s.* FROM patience CROSS JOIN fencelock.lock_session s WHERE s.secret = $5::uuid FOR UPDATE OF s
),
renewed AS (
  UPDATE fencelock.lock_session s SET renewed_at = clock_timestamp(), expires_at = clock_timestamp() + s.ttl
    FROM session x
   WHERE s.id = x.id AND x.ended_at IS NULL AND NOT ` + over("x.renewed_at", "x.expires_at") + `
  RETURNING s.ttl, s.expires_at
),
buried AS (
  UPDATE fencelock.lock_session s SET ended_at = clock_timestamp()
    FROM session x
   WHERE s.id = x.id AND x.ended_at IS NULL AND NOT EXISTS (SELECT FROM renewed)
)
SELECT r.ttl, r.expires_at - clock_timestamp() AS remaining
  FROM patience LEFT JOIN renewed r ON true`

// Heartbeat implements port.SessionRegistry. Heartbeats have connections of their own.
func (s *Store) Heartbeat(ctx context.Context, id lock.SessionID) (port.Vitals, error) {
	received := s.clock.elapsed()
	ctx, cancel := s.call(ctx)
	defer cancel()
	conn, err := s.pools.beats.Acquire(ctx)
	if err != nil {
		return port.Vitals{}, translate(err, reads)
	}
	defer conn.Release()
	sent := s.clock.elapsed()
	if sent-received > maxHeartbeatAge {
		return port.Vitals{}, lock.Contention("the heartbeat was too old to be passed on", false, nil)
	}
	var ttl, remaining *time.Duration
	err = conn.QueryRow(ctx, heartbeat,
		append(s.clock.reading().args(), milliseconds(heartbeatPatience), id.Reveal())...).Scan(&ttl, &remaining)
	switch {
	case err != nil:
		return port.Vitals{}, translate(err, writes)
	case ttl == nil:
		return port.Vitals{}, lock.ErrSessionDead
	}
	return port.Vitals{TTL: *ttl, Remaining: max(deref(remaining)-(s.clock.elapsed()-sent), 0)}, nil
}

// closeSession ends a session that lives.
var closeSession = `
WITH patience AS MATERIALIZED (SELECT set_config('lock_timeout', $4, true)),
session AS MATERIALIZED (
  SELECT s.*, ` + over("s.renewed_at", "s.expires_at") + ` AS expired
    FROM patience CROSS JOIN fencelock.lock_session s WHERE s.secret = $5::uuid FOR UPDATE OF s
)
UPDATE fencelock.lock_session s SET ended_at = clock_timestamp()
  FROM session x
 WHERE s.id = x.id AND x.ended_at IS NULL
RETURNING s.id, x.expired`

// countEnded counts the grants that ended with a session. It is a statement of its own, and so sees what the
// one that ended the session has waited for.
var countEnded = `
SELECT count(*) FROM fencelock.lock_entry e CROSS JOIN fencelock.lock_meta m
 WHERE e.session = $4 AND e.token > m.floor
   AND NOT (e.lease IS NOT NULL AND ` + over("e.leased_at", "e.lease_until") + `)`

// CloseSession implements port.SessionRegistry. The end of the session is one row; it frees everything at once. A release that is
// under way meanwhile may be counted as well.
func (s *Store) CloseSession(ctx context.Context, id lock.SessionID) (int, error) {
	ctx, cancel := s.call(ctx)
	defer cancel()
	r := s.clock.reading()
	count := 0
	err := pgx.BeginFunc(ctx, s.pools.work, func(tx pgx.Tx) error {
		var session int64
		var expired bool
		err := tx.QueryRow(ctx, closeSession, append(r.args(), milliseconds(longPatience), id.Reveal())...).Scan(&session, &expired)
		if errors.Is(err, pgx.ErrNoRows) {
			return nil
		}
		if err != nil || expired {
			return err
		}
		return tx.QueryRow(ctx, countEnded, append(r.args(), session)...).Scan(&count)
	})
	if err != nil {
		return 0, translate(err, writes)
	}
	return count, nil
}

// locksOf lists the grants of a session from one snapshot.
var locksOf = `
SELECT s.ended_at IS NOT NULL AS ended, ` + over("s.renewed_at", "s.expires_at") + ` AS expired, s.id AS session, s.owner,
       e.namespace, e.key, e.token, e.request_id, e.granted_at, e.lease, e.lease_until - clock_timestamp() AS lease_left, e.metadata
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
