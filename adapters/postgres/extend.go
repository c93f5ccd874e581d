package postgres

import (
	"context"
	"time"

	"github.com/fencelock/fencelock/core/lock"
)

// extend moves the end of the live grant with the token $9 to $10 from now, or to its own lease from now, if that is later than
// where it is. A lease that begins in the future does so since the clock was set back, so its end says nothing:
// it begins anew then, and is no shorter than it was.
var extend = locked("") + `,
wanted AS MATERIALIZED (
  SELECT v.namespace, v.key, v.live, v.holder_secret, v.token, v.lease, v.lease_until,
         coalesce($10::interval, v.lease) AS want, v.lease_until - v.leased_at AS span,
         v.leased_at > clock_timestamp() + interval '1 second' AS ahead
    FROM view v
),
extended AS (
  UPDATE fencelock.lock_entry e
     SET leased_at = clock_timestamp(),
         lease_until = clock_timestamp() + CASE WHEN w.ahead THEN greatest(w.want, w.span) ELSE w.want END
    FROM wanted w
   WHERE e.namespace = w.namespace AND e.key = w.key
     AND w.live AND w.holder_secret = $7::uuid AND w.token = $9::bigint AND w.lease IS NOT NULL
     AND (w.ahead OR clock_timestamp() + w.want > w.lease_until)
  RETURNING e.lease_until - clock_timestamp() AS lease_left
),` + endLapsed + `
SELECT x.lease_left AS extended_left, (SELECT count(*) FROM told) AS told,` + shown + `
  FROM view v LEFT JOIN extended x ON true`

type extended struct {
	sight
	ExtendedLeft *time.Duration
	Told         int64
}

// Extend implements port.LockStore. Neither the token nor what else makes up the grant is touched.
func (s *Store) Extend(
	ctx context.Context, key lock.Key, session lock.SessionID, token lock.Token, lease time.Duration,
) (lock.Grant, error) {
	x, trip, err := run(ctx, s, query[extended]{
		key: key, asker: session, did: writes, sql: extend, sight: func(x *extended) *sight { return &x.sight },
		args: func() []any { return []any{int64(token), orNull(lease)} },
	})
	switch {
	case err != nil:
		return lock.Grant{}, err
	case x.AskerDead:
		return lock.Grant{}, lock.ErrSessionDead
	case !x.is(session, token):
		return lock.Grant{}, lock.ErrLost
	}
	g, err := x.grant(key, trip)
	if err == nil && x.ExtendedLeft != nil {
		g.LeaseRemaining = max(*x.ExtendedLeft-trip, 0)
	}
	return g, err
}
