package postgres

import (
	"context"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/fencelock/fencelock/core/lock"
	"github.com/fencelock/fencelock/core/port"
)

var (
	// alive is the condition that a session s lives.
	alive = "s.ended_at IS NULL AND NOT " + over("s.renewed_at", "s.expires_at")

	// standing are the grants e that stand, with their sessions s.
	standing = `
  FROM fencelock.lock_meta m CROSS JOIN fencelock.lock_entry e JOIN fencelock.lock_session s ON s.id = e.session
 WHERE e.token > m.floor AND ` + alive + `
   AND NOT (e.lease IS NOT NULL AND ` + over("e.leased_at", "e.lease_until") + `)`

	// listGrants lists grants of the namespace $4 whose keys are in [$5, $6) and behind $7, which is empty for none.
	listGrants = `
SELECT e.key, e.token, s.secret::text, s.owner, e.request_id, e.granted_at, e.lease, ` + left("e.leased_at", "e.lease_until") + `,
       e.metadata` + standing + `
   AND e.namespace = $4 AND e.key >= $5 AND e.key < $6 AND e.key > $7
 ORDER BY e.key LIMIT $8`
)

// Grants implements port.Catalog.
func (s *Store) Grants(
	ctx context.Context, namespace, prefix string, page port.Page,
) (grants []lock.Grant, next string, err error) {
	listing := "g\x00" + namespace + "\x00" + prefix
	last, size, err := page.Open(listing, func(last string) bool {
		_, err := lock.NewKey(namespace, last)
		return err == nil && strings.HasPrefix(last, prefix)
	})
	if err != nil {
		return nil, "", err
	}
	type row struct {
		Key              string
		Token            int64
		Secret, Owner    string
		RequestID        string
		GrantedAt        time.Time
		Lease, LeaseLeft *time.Duration
		Metadata         []byte
	}
	sent := s.clock.elapsed()
	rows, err := list[row](ctx, s, listGrants, append(s.clock.reading().args(), namespace, prefix, behindPrefix(prefix), last, size+1)...)
	if err != nil {
		return nil, "", err
	}
	trip := s.clock.elapsed() - sent
	for _, r := range rows {
		key, err := lock.NewKey(namespace, r.Key)
		if err != nil {
			return nil, "", lock.Contention("the store holds a key that is none", false, err)
		}
		metadata, err := decodeMetadata(r.Metadata)
		if err != nil {
			return nil, "", err
		}
		grants = append(grants, lock.Grant{
			Key: key, Session: sessionID(r.Secret), Owner: lock.Owner(r.Owner), Token: lock.Token(r.Token),
			RequestID: lock.RequestID(r.RequestID), AcquiredAt: r.GrantedAt, Lease: deref(r.Lease),
			LeaseRemaining: max(deref(r.LeaseLeft)-trip, 0), Metadata: metadata,
		})
	}
	grants, next = cut(grants, size, listing, func(g lock.Grant) string { return g.Key.Name() })
	return grants, next, nil
}

// behindPrefix is above every key with the prefix, and not above any that follows those.
func behindPrefix(prefix string) string {
	if prefix == "" {
		return "\x7f" // keys are printable
	}
	end := []byte(prefix)
	end[len(end)-1]++ // it is a byte of a key, and so not the last one
	return string(end)
}

// Sessions implements port.Catalog. The order is that of their numbers: the oldest come first. A page token
// holds a number, not the secret.
func (s *Store) Sessions(ctx context.Context, page port.Page) (sessions []lock.Session, next string, err error) {
	const listing = "s"
	last, size, err := page.Open(listing, isNumber)
	if err != nil {
		return nil, "", err
	}
	behind, _ := strconv.ParseInt(last, 10, 64) // 0 for the first page
	type row struct {
		ID            int64
		Secret, Owner string
		TTL           time.Duration
		CreatedAt     time.Time
		Metadata      []byte
	}
	rows, err := list[row](ctx, s, `
SELECT s.id, s.secret::text, s.owner, s.ttl, s.created_at, s.metadata
  FROM fencelock.lock_session s
 WHERE s.id > $4 AND `+alive+`
 ORDER BY s.id LIMIT $5`, append(s.clock.reading().args(), behind, size+1)...)
	if err != nil {
		return nil, "", err
	}
	rows, next = cut(rows, size, listing, func(r row) string { return strconv.FormatInt(r.ID, 10) })
	for _, r := range rows {
		metadata, err := decodeMetadata(r.Metadata)
		if err != nil {
			return nil, "", err
		}
		sessions = append(sessions, lock.Session{
			ID: sessionID(r.Secret), Owner: lock.Owner(r.Owner), TTL: r.TTL, CreatedAt: r.CreatedAt, Metadata: metadata,
		})
	}
	return sessions, next, nil
}

// isNumber reports whether a text is a number as we write it.
func isNumber(text string) bool {
	n, err := strconv.ParseInt(text, 10, 64)
	return err == nil && n > 0 && strconv.FormatInt(n, 10) == text
}

// listRevocations lists records of the namespace $1 and of raised floors, those before $2. Each is a range of the index, and a page
// reads no more of either than it could need. Both are asked for in the order of that index, though the namespace is
// one: in that of the numbers alone the database may prefer to read the records of all namespaces, until it has found enough.
const listRevocations = `
(` + revocations + `
  WHERE r.namespace >= $1 AND (r.namespace, r.id) < ($1, $2::bigint) ORDER BY r.namespace DESC, r.id DESC LIMIT $3)
UNION ALL
(` + revocations + `
  WHERE r.namespace IS NULL AND r.id < $2 ORDER BY r.namespace DESC, r.id DESC LIMIT $3)
ORDER BY id DESC LIMIT $3`

const revocations = `SELECT r.id, r.key, r.operator, r.reason, r.at, r.previous_owner, r.previous_session::text, r.previous_token, r.floor
   FROM fencelock.lock_revocation r`

// Revocations implements port.Catalog.
func (s *Store) Revocations(
	ctx context.Context, namespace string, page port.Page,
) (revocations []lock.Revocation, next string, err error) {
	listing := "a\x00" + namespace
	last, size, err := page.Open(listing, isNumber)
	if err != nil {
		return nil, "", err
	}
	before := int64(math.MaxInt64)
	if last != "" {
		before, _ = strconv.ParseInt(last, 10, 64) // it is a number
	}
	type row struct {
		ID               int64
		Key              *string
		Operator, Reason string
		At               time.Time
		Owner, Secret    *string
		Token            *int64
		Floor            int64
	}
	rows, err := list[row](ctx, s, listRevocations, namespace, before, size+1)
	if err != nil {
		return nil, "", err
	}
	rows, next = cut(rows, size, listing, func(r row) string { return strconv.FormatInt(r.ID, 10) })
	for _, r := range rows {
		revocation := lock.Revocation{
			ID: auditID(r.ID), Operator: r.Operator, Reason: r.Reason, At: r.At, PreviousOwner: lock.Owner(deref(r.Owner)),
			PreviousSession: sessionID(deref(r.Secret)), PreviousToken: lock.Token(deref(r.Token)), Floor: lock.Token(r.Floor),
		}
		if r.Key != nil {
			if revocation.Key, err = lock.NewKey(namespace, *r.Key); err != nil {
				return nil, "", lock.Contention("the store holds a key that is none", false, err)
			}
		}
		revocations = append(revocations, revocation)
	}
	return revocations, next, nil
}

// Counts implements port.Catalog.
func (s *Store) Counts(ctx context.Context) (port.Counts, error) {
	ctx, cancel := s.call(ctx)
	defer cancel()
	counts, _, err := ask[port.Counts](ctx, s, s.pools.work, reads, `
SELECT (SELECT count(*)`+standing+`) AS grants,
       (SELECT count(*) FROM fencelock.lock_session s WHERE `+alive+`) AS sessions`, s.clock.reading().args()...)
	return deref(counts), err
}

// list asks for rows, all from one snapshot.
func list[R any](ctx context.Context, s *Store, sql string, args ...any) ([]R, error) {
	ctx, cancel := s.call(ctx)
	defer cancel()
	rows, err := s.pools.work.Query(ctx, sql, args...)
	if err != nil {
		return nil, translate(err, reads)
	}
	found, err := pgx.CollectRows(rows, pgx.RowToStructByPos[R])
	if err != nil {
		return nil, translate(err, reads)
	}
	return found, nil
}

// cut makes a page of one row more than that, and the token of the next if there is one.
func cut[R any](rows []R, size int, listing string, name func(R) string) (page []R, next string) {
	if len(rows) <= size {
		return rows, ""
	}
	rows = slices.Clip(rows[:size])
	return rows, port.PageToken(listing, name(rows[size-1]))
}
