package postgres

import (
	"context"

	"github.com/fencelock/fencelock/core/lock"
)

// released makes a statement that ends the live grant of the session $9 for which the condition holds. The session is not
// the one that asks: it needs no lock, and that it is dead is no error.
func released(condition string) string {
	return locked("") + `,
released AS (
  UPDATE fencelock.lock_entry e SET ` + endGrant + `
    FROM view v
   WHERE e.namespace = v.namespace AND e.key = v.key AND v.live AND v.holder_secret = $9::uuid AND ` + condition + `
  RETURNING e.token
),` + endLapsed + `
SELECT EXISTS (SELECT FROM released) AS did, (SELECT count(*) FROM told) AS told,` + shown + `
  FROM view v`
}

var (
	releaseByToken   = released("v.token = $10::bigint")
	releaseByRequest = released("v.request_id = $10")
)

// ended is what a statement did that ends a grant.
type ended struct {
	sight
	Did  bool
	Told int64
}

func (e *ended) sees() *sight { return &e.sight }

// DeleteIfOwner implements port.LockStore.
func (s *Store) DeleteIfOwner(ctx context.Context, key lock.Key, session lock.SessionID, token lock.Token) (bool, error) {
	return s.release(ctx, key, releaseByToken, session, int64(token))
}

// Abandon implements port.Handover. It waits for the key's row, and so for an attempt under the same
// request id that the store is busy with.
func (s *Store) Abandon(ctx context.Context, key lock.Key, session lock.SessionID, id lock.RequestID) (bool, error) {
	return s.release(ctx, key, releaseByRequest, session, string(id))
}

// release carries out what [released] made; name is $10.
func (s *Store) release(ctx context.Context, key lock.Key, sql string, session lock.SessionID, name any) (bool, error) {
	e, _, err := run(ctx, s, query[ended]{
		key: key, did: writes, sql: sql, sight: (*ended).sees,
		args: func() []any { return []any{session.Reveal(), name} },
	})
	if err != nil {
		return false, err
	}
	if e.Did {
		s.waiters.fire(key)
	}
	return e.Did, nil
}

// settle only looks.
var settle = looked + `
SELECT` + shown + `
  FROM view v`

// Settle implements port.Handover.
func (s *Store) Settle(ctx context.Context, key lock.Key, session lock.SessionID, id lock.RequestID) (lock.Grant, bool, error) {
	v, trip, err := run(ctx, s, query[sight]{
		key: key, asker: session, sql: settle, sight: func(v *sight) *sight { return v },
	})
	switch {
	case err != nil:
		return lock.Grant{}, false, err
	case v.AskerDead:
		return lock.Grant{}, false, lock.ErrSessionDead
	case !v.named(session, id):
		return lock.Grant{}, false, nil
	}
	g, err := v.grant(key, trip)
	return g, err == nil, err
}
