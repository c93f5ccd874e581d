package postgres

import (
	"context"
	"fmt"
	"time"

	"github.com/fencelock/fencelock/core/lock"
	"github.com/fencelock/fencelock/core/port"
)

// revoke ends the live grant, of the token $9 unless that is 0, by the operator $10 for the reason $11. The floor is the token that a
// grant would have had instead.
var revoke = locked("") + `,
revoked AS (
  UPDATE fencelock.lock_entry e SET ` + endGrant + `, floor = greatest(` + nextToken + `, v.token + 1)
    FROM view v
   WHERE e.namespace = v.namespace AND e.key = v.key AND v.live AND ($9::bigint = 0 OR v.token = $9::bigint)
  RETURNING e.floor, v.token, v.owner, v.holder_secret
),
recorded AS (
  INSERT INTO fencelock.lock_revocation
         (namespace, key, operator, reason, at, previous_owner, previous_session, previous_token, floor)
  SELECT $5, $6, $10, $11, clock_timestamp(), r.owner, r.holder_secret, r.token, r.floor FROM revoked r
  RETURNING id, at, floor
),` + endLapsed + `
SELECT r.id, r.at, r.floor, (SELECT count(*) FROM told) AS told,` + shown + `
  FROM view v LEFT JOIN recorded r ON true`

type revoked struct {
	sight
	ID    *int64
	At    *time.Time
	Floor *int64
	Told  int64
}

// Revoke implements port.LockStore.
func (s *Store) Revoke(ctx context.Context, req port.RevokeRequest) (lock.Revocation, error) {
	r, _, err := run(ctx, s, query[revoked]{
		key: req.Key, did: writes, sql: revoke, sight: func(r *revoked) *sight { return &r.sight },
		args: func() []any { return []any{int64(req.Expected), req.Operator, req.Reason} },
	})
	switch {
	case err != nil:
		return lock.Revocation{}, err
	case r.ID == nil:
		return lock.Revocation{}, lock.ErrLost
	}
	s.waiters.fire(req.Key)
	return lock.Revocation{
		ID: auditID(*r.ID), Key: req.Key, Operator: req.Operator, Reason: req.Reason, At: deref(r.At),
		PreviousOwner: lock.Owner(deref(r.Owner)), PreviousSession: r.session(), PreviousToken: lock.Token(r.Token),
		Floor: lock.Token(deref(r.Floor)),
	}, nil
}

// auditID is the id of an audit record, whose texts sort as its numbers do.
func auditID(number int64) string { return fmt.Sprintf("%016x", number) }
