package postgres

import (
	"context"
	"time"

	"github.com/fencelock/fencelock/core/lock"
	"github.com/fencelock/fencelock/core/port"
)

// nextToken may stand only in the outer target list of an UPDATE of a row that is locked already. Anywhere
// else, or without the lock, it can be evaluated before a wait, and tokens of a key would go back.
const nextToken = "nextval('fencelock.fencing_token_seq')"

// putGrant sets the columns of a grant whose request is in $9 to $11.
const putGrant = `token = ` + nextToken + `, session = v.asker, request_id = $9, metadata = $11::jsonb,
         granted_at = clock_timestamp(), lease = $10::interval, leased_at = CASE WHEN $10 IS NOT NULL THEN clock_timestamp() END,
         lease_until = clock_timestamp() + $10::interval, idle_since = NULL`

// behind is the condition that the store gives tokens that this Store, by $12, has seen already.
const behind = `(SELECT q.last_value < $12::bigint FROM fencelock.fencing_token_seq q)`

// tryInsert grants the key of a view that is free. $13 says that somebody waits here for the key.
var tryInsert = locked(sharedAsker) + `,
granted AS (
  UPDATE fencelock.lock_entry e SET ` + putGrant + `
    FROM view v
   WHERE e.namespace = v.namespace AND e.key = v.key
     AND v.free AND NOT v.asker_dead AND v.asker_expired IS NULL AND NOT ` + behind + `
  RETURNING e.token, e.granted_at, e.lease_until - clock_timestamp() AS lease_left
),
awaited AS (
  UPDATE fencelock.lock_entry e SET awaited = true
    FROM view v
   WHERE e.namespace = v.namespace AND e.key = v.key
     AND $13 AND v.live AND NOT v.awaited AND NOT EXISTS (SELECT FROM granted)
),
told AS MATERIALIZED (
  SELECT ` + tellLapsed("v") + ` FROM view v WHERE v.lapsed AND NOT v.done AND EXISTS (SELECT FROM granted)
)
SELECT g.token AS made, g.granted_at AS made_at, g.lease_left AS made_left, v.asker_owner, ` + behind + ` AS behind,
       (SELECT count(*) FROM told) AS told,` + shown + `
  FROM view v LEFT JOIN granted g ON true`

// made is what a statement did that may grant.
type made struct {
	sight
	Made       *int64
	MadeAt     *time.Time
	MadeLeft   *time.Duration
	AskerOwner *string
	Behind     bool
	Told       int64
}

func (m *made) grantOf(req port.GrantRequest, trip time.Duration) lock.Grant {
	return lock.Grant{
		Key: req.Key, Session: req.Session, Owner: lock.Owner(deref(m.AskerOwner)), Token: lock.Token(*m.Made),
		RequestID: req.RequestID, AcquiredAt: deref(m.MadeAt), Lease: req.Lease,
		LeaseRemaining: max(deref(m.MadeLeft)-trip, 0), Metadata: req.Metadata,
	}
}

// TryInsert implements port.LockStore.
func (s *Store) TryInsert(ctx context.Context, req port.GrantRequest) (port.Attempt, error) {
	if err := s.watermark.mayGrant(ctx); err != nil {
		return port.Attempt{}, err
	}
	q := query[made]{
		key: req.Key, asker: req.Session, create: true, sql: tryInsert,
		args: func() []any {
			return append(grantArgs(req), int64(s.watermark.seen()), s.waiters.waiting(req.Key))
		},
		sight: func(m *made) *sight { return &m.sight },
	}
	m, trip, err := run(ctx, s, q)
	switch {
	case err != nil:
		return port.Attempt{}, err
	case m.Made != nil:
		s.watermark.granted(lock.Token(*m.Made))
		return port.Attempt{Granted: true, Grant: m.grantOf(req, trip)}, nil
	case m.AskerDead:
		return port.Attempt{}, lock.ErrSessionDead
	case m.named(req.Session, req.RequestID):
		g, err := m.grant(req.Key, trip)
		return port.Attempt{Granted: true, Grant: g}, err
	case m.Live:
		return port.Attempt{Holder: m.holder()}, nil
	case m.Behind:
		return port.Attempt{}, s.watermark.wentBack()
	}
	return port.Attempt{}, errCrowded()
}

// grantArgs are $9 to $11.
func grantArgs(req port.GrantRequest) []any {
	var lease *time.Duration
	if req.Lease > 0 {
		lease = &req.Lease
	}
	return []any{string(req.RequestID), lease, encodeMetadata(req.Metadata)}
}
