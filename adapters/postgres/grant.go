package postgres

import (
	"context"
	"time"

	"github.com/fencelock/fencelock/core/lock"
	"github.com/fencelock/fencelock/core/port"
)

// nextToken may stand only in the outer target list of an UPDATE of a row that is locked already. Anywhere
// else, or without the lock, it can be evaluated before a wait, and tokens of a key would go back.
const nextToken = "pg_catalog.nextval('fencelock.fencing_token_seq'::regclass)" //nolint:gosec // A number, no secret.

// putGrant sets the columns of a grant whose request is in $9 to $11.
const putGrant = `token = ` + nextToken + `, session = v.asker, request_id = $9, metadata = $11::jsonb,
         granted_at = clock_timestamp(), lease = $10::interval,
         leased_at = CASE WHEN $10::interval IS NOT NULL THEN clock_timestamp() END,
         lease_until = clock_timestamp() + $10::interval, idle_since = NULL`

// endGrant sets the columns of a row whose grant ends. Its last token stays, and the mark of those who wait
// goes: they are told, and mark the row again if they have to wait on.
const endGrant = `session = NULL, request_id = NULL, granted_at = NULL, metadata = NULL,
         lease = NULL, leased_at = NULL, lease_until = NULL, awaited = false, idle_since = clock_timestamp()`

// known is the highest token that is known to be given: by what this Store has seen, in $12, and by the key's own row.
const known = "greatest($12::bigint, v.token, v.floor)"

// behind is the condition that the store would give tokens again that are known to be given.
const behind = "(" + lastToken + " < " + known + ")"

// endLapsed ends a grant whose lease has lapsed, so that it stays over for everyone who is told so, whatever the clock will show.
// It gives the relation "lapsed", and tells the servers.
var endLapsed = `
lapsed AS (
  UPDATE fencelock.lock_entry e SET ` + endGrant + `
    FROM view v
   WHERE e.namespace = v.namespace AND e.key = v.key AND v.lapsed AND NOT v.done
  RETURNING e.token
),
told AS MATERIALIZED (SELECT ` + tellLapsed("v") + ` FROM view v WHERE EXISTS (SELECT FROM lapsed))`

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
   WHERE e.namespace = v.namespace AND e.key = v.key AND $13::boolean AND v.live AND NOT v.awaited
),
told AS MATERIALIZED (
  SELECT ` + tellLapsed("v") + ` FROM view v WHERE v.lapsed AND NOT v.done AND EXISTS (SELECT FROM granted)
)` + showMade

// showMade ends a statement that may grant.
var showMade = `
SELECT g.token AS made, g.granted_at AS made_at, g.lease_left AS made_left, v.asker_owner, ` + behind + ` AS behind, ` + known + ` AS known,
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
	Known      int64
	Told       int64
}

func (m *made) sees() *sight { return &m.sight }

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
	m, trip, err := run(ctx, s, query[made]{
		key: req.Key, asker: req.Session, did: writes, sql: tryInsert, create: true, sight: (*made).sees,
		args: func() []any { return append(s.grantArgs(req), s.waiters.waiting(req.Key)) },
	})
	switch {
	case err != nil:
		return port.Attempt{}, err
	case m.Made != nil:
		s.watermark.granted(lock.Token(*m.Made))
		return port.Attempt{Granted: true, Grant: m.grantOf(req, trip)}, nil
	case m.AskerDead:
		return port.Attempt{}, lock.ErrSessionDead
	case m.named(req.Session, req.RequestID):
		s.watermark.granted(lock.Token(m.Token))
		g, err := m.grant(req.Key, trip)
		return port.Attempt{Granted: err == nil, Grant: g}, err
	case m.Live:
		s.waiters.held(req.Key, m.Number)
		return port.Attempt{Holder: m.holder()}, nil
	case m.Behind:
		s.watermark.granted(lock.Token(m.Known))
		return port.Attempt{}, s.watermark.wentBack()
	}
	return port.Attempt{}, errCrowded()
}

// grantArgs are $9 to $12.
func (s *Store) grantArgs(req port.GrantRequest) []any {
	return []any{string(req.RequestID), orNull(req.Lease), encodeMetadata(req.Metadata), int64(s.watermark.seen())}
}

// orNull is how a lease is passed on: there is none where it is 0.
func orNull(lease time.Duration) *time.Duration {
	if lease <= 0 {
		return nil
	}
	return &lease
}
