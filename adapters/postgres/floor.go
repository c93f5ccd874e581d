package postgres

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/fencelock/fencelock/core/lock"
	"github.com/fencelock/fencelock/core/port"
)

const (
	// maxFloor leaves room for tokens above the highest floor.
	maxFloor = lock.Token(1) << 62
	// idlePatience is how long the database waits for the next statement of a transaction that has all keys locked.
	idlePatience = 5 * time.Second
)

// waitForEntries makes the wait for [lockEntries] long enough that the database ends an autovacuum which is in its way: it does so once
// somebody has waited for deadlock_timeout. Everybody who changes a key waits behind meanwhile, so it is not longer than that needs.
const waitForEntries = `
SELECT set_config('lock_timeout', (s.setting::bigint + 1000)::text, true), set_config('idle_in_transaction_session_timeout', $1, true)
  FROM pg_catalog.pg_settings s WHERE s.name = 'deadlock_timeout'`

// lockEntries makes every statement that changes a grant come wholly before or after the transaction. A lock that
// somebody has on a row does not stand in its way.
const lockEntries = "LOCK TABLE fencelock.lock_entry IN SHARE ROW EXCLUSIVE MODE"

// raiseFloor lifts the floor to $4 at least, and to every token and floor that the store knows, with the sequence. $5 and $6
// are operator and reason. One row ends all grants.
var raiseFloor = `
WITH raised AS (
  UPDATE fencelock.lock_meta m
     SET raises = m.raises + 1,
         floor = greatest($4::bigint, m.floor, (SELECT q.last_value FROM fencelock.fencing_token_seq q),
                          (SELECT max(greatest(e.token, e.floor)) FROM fencelock.lock_entry e),
                          (SELECT max(r.floor) FROM fencelock.lock_revocation r))
  RETURNING m.floor
),
recorded AS (
  INSERT INTO fencelock.lock_revocation (operator, reason, at, floor)
  SELECT $5, $6, clock_timestamp(), r.floor FROM raised r
  RETURNING at, floor
)
SELECT r.at, pg_catalog.setval('fencelock.fencing_token_seq'::regclass, r.floor) AS floor,
       (SELECT count(*)
          FROM fencelock.lock_entry e JOIN fencelock.lock_session h ON h.id = e.session CROSS JOIN fencelock.lock_meta m
         WHERE e.token > m.floor AND h.ended_at IS NULL AND NOT ` + over("h.renewed_at", "h.expires_at") + `
           AND NOT (e.lease IS NOT NULL AND ` + over("e.leased_at", "e.lease_until") + `)) AS ended_grants
  FROM recorded r`

// RaiseFloor implements port.Custodian.
func (s *Store) RaiseFloor(ctx context.Context, req port.FloorRequest) (port.FloorRaised, error) {
	if req.Above < 0 || req.Above > maxFloor {
		return port.FloorRaised{}, lock.Invalid("above", "must be 0 to 2^62")
	}
	ctx, cancel := s.call(ctx)
	defer cancel()
	var raised *port.FloorRaised
	err := s.patiently(ctx, lockEntries, func(time.Duration) error {
		return s.transact(ctx, func(tx pgx.Tx) (err error) {
			raised, err = s.raise(ctx, tx, req)
			return err
		})
	})
	if err != nil {
		return port.FloorRaised{}, err
	}
	s.watermark.raised(raised.Floor)
	s.waiters.wakeAll()
	return *raised, nil
}

// raise is the transaction of a raised floor.
func (s *Store) raise(ctx context.Context, tx pgx.Tx, req port.FloorRequest) (*port.FloorRaised, error) {
	_, err := tx.Exec(ctx, waitForEntries, milliseconds(idlePatience))
	if err == nil {
		_, err = tx.Exec(ctx, lockEntries)
	}
	if err != nil {
		return nil, translate(err, reads)
	}
	rows, err := tx.Query(ctx, raiseFloor, append(s.clock.reading().args(),
		int64(max(req.Above, s.watermark.seen())), req.Operator, req.Reason)...)
	if err != nil {
		return nil, translate(err, reads)
	}
	raised, err := pgx.CollectExactlyOneRow(rows, pgx.RowToAddrOfStructByName[port.FloorRaised])
	if err != nil {
		return nil, translate(err, reads)
	}
	return raised, nil
}
