package postgres

import (
	"context"

	"github.com/fencelock/fencelock/core/lock"
	"github.com/fencelock/fencelock/core/port"
)

// handoff puts a grant in the place of that of the session $13 with the token $14.
var handoff = locked(sharedAsker) + `,
granted AS (
  UPDATE fencelock.lock_entry e SET ` + putGrant + `
    FROM view v
   WHERE e.namespace = v.namespace AND e.key = v.key
     AND v.live AND v.holder_secret = $13::uuid AND v.token = $14::bigint
     AND NOT v.asker_dead AND v.asker_expired IS NULL AND NOT ` + behind + `
  RETURNING e.token, e.granted_at, e.lease_until - clock_timestamp() AS lease_left
),` + endLapsed + showMade

// Handoff implements port.Handover. A grant that is over counts before a dead taker does.
func (s *Store) Handoff(ctx context.Context, from port.GrantRef, to port.GrantRequest) (lock.Grant, error) {
	if err := s.watermark.mayGrant(ctx); err != nil {
		return lock.Grant{}, err
	}
	m, trip, err := run(ctx, s, query[made]{
		key: to.Key, asker: to.Session, did: writes, sql: handoff, sight: (*made).sees,
		args: func() []any { return append(s.grantArgs(to), from.Session.Reveal(), int64(from.Token)) },
	})
	switch {
	case err != nil:
		return lock.Grant{}, err
	case m.Made != nil:
		s.watermark.granted(lock.Token(*m.Made))
		return m.grantOf(to, trip), nil
	case !m.is(from.Session, from.Token):
		return lock.Grant{}, lock.ErrLost
	case m.AskerDead:
		return lock.Grant{}, lock.ErrSessionDead
	case m.Behind:
		s.watermark.granted(lock.Token(m.Known))
		return lock.Grant{}, s.watermark.wentBack()
	}
	return lock.Grant{}, errCrowded()
}
