package postgres

import (
	"encoding/json"
	"time"

	"github.com/fencelock/fencelock/core/lock"
)

// over is the SQL condition that a life from since until a moment has ended by the clock: both the database's clock and
// this server's estimate of it have passed that moment. $1 to $3 are a [reading]. Neither counts while the
// clock has stepped within such a life's length: then who is alive gets the time to say so. A life that
// begins in the future, by both clocks, began before the clock was set back and was not renewed since. Where only the
// database's clock says so it was set back just now, and this server does not know yet for how long nobody has renewed
// anything; its estimate may be older by as long as a statement waits for a row.
func over(since, until string) string {
	span := "(" + until + " - " + since + ")"
	return "(" + until + " <= least(clock_timestamp(), $1::timestamptz) AND " + span + " <= $2::interval" +
		" OR " + since + " > greatest(clock_timestamp(), $1::timestamptz) + interval '2 seconds' AND " + span + " <= $3::interval)"
}

// left is the SQL expression of what is left of such a life; null where that is unknown, since the clock was set back.
func left(since, until string) string {
	return "CASE WHEN " + since + " <= clock_timestamp() + interval '1 second' THEN " + until + " - clock_timestamp() END"
}

// Tables are asked for named columns only: those that a newer version adds must not collide with the names that statements give
// to what they find out.
const (
	entryColumns = "e.namespace, e.key, e.token, e.floor, e.session, e.request_id, e.granted_at, e.lease, e.leased_at, " +
		"e.lease_until, e.awaited, e.metadata"
	sessionColumns = "s.id, s.secret, s.owner, s.ttl, s.renewed_at, s.expires_at, s.ended_at"
)

// locked begins every statement that changes the grant of a key. It locks the key's row and, where sharing
// says so, after it the row of the session that asks; what follows may rely on both, and takes numbers
// and times only then. It gives the relation "view" with one row, of nulls where the key has no row yet.
//
// $1 to $3 are a [reading], $4 is the longest wait for a row, $5 and $6 are the key, $7 is the asking session. $8 is
// the number of a session that an earlier statement did not see: the snapshot of a statement that waited for
// the row can be older than the holder's session, so only a second look shows that there is none.
func locked(sharing string) string {
	return `
WITH patience AS MATERIALIZED (SELECT set_config('lock_timeout', $4, true)),
entry AS MATERIALIZED (
  SELECT ` + entryColumns + ` FROM patience CROSS JOIN fencelock.lock_entry e
   WHERE e.namespace = $5 AND e.key = $6
     FOR UPDATE OF e
),
asker AS MATERIALIZED (
  SELECT ` + sessionColumns + ` FROM (SELECT count(*) FROM entry) AS first CROSS JOIN fencelock.lock_session s
   WHERE s.secret = $7::uuid
   ` + sharing + `
),` + seen
}

// sharedAsker locks the session that is to be granted something: it cannot end before the grant is there. It does not wait for the
// row; a session whose row somebody else has locked is busy.
const sharedAsker = "FOR SHARE OF s SKIP LOCKED"

// looked begins every statement that only reads about a key. It is as [locked], without any lock.
var looked = `
WITH patience AS MATERIALIZED (SELECT $4::text),
entry AS MATERIALIZED (SELECT ` + entryColumns + ` FROM fencelock.lock_entry e WHERE e.namespace = $5 AND e.key = $6),
asker AS MATERIALIZED (SELECT ` + sessionColumns + ` FROM fencelock.lock_session s WHERE s.secret = $7::uuid),` + seen

// seen judges the relations "entry" and "asker".
var seen = `
judged AS MATERIALIZED (
  SELECT ` + entryColumns + `,
         h.id AS holder, h.secret AS holder_secret, h.owner, ` + left("h.renewed_at", "h.expires_at") + ` AS session_left,
         a.id IS NULL AND EXISTS (SELECT FROM fencelock.lock_session x WHERE x.secret = $7::uuid) AS asker_busy,
         a.id IS NULL OR a.ended_at IS NOT NULL AS asker_dead,
         CASE WHEN a.ended_at IS NULL AND ` + over("a.renewed_at", "a.expires_at") + ` THEN a.id END AS asker_expired,
         a.id AS asker, a.owner AS asker_owner,
         e.lease IS NOT NULL AND ` + over("e.leased_at", "e.lease_until") + ` AS lapsed,
         e.session IS NULL OR e.token <= m.floor OR h.ended_at IS NOT NULL
           OR (h.id IS NULL AND e.session = $8::bigint) AS done,
         h.id IS NULL OR ` + over("h.renewed_at", "h.expires_at") + ` AS unsure
    FROM fencelock.lock_meta m LEFT JOIN entry e ON true
    LEFT JOIN fencelock.lock_session h ON h.id = e.session
    LEFT JOIN asker a ON true
),
view AS MATERIALIZED (
  SELECT j.namespace, j.key, j.token, j.floor, j.session, j.request_id, j.granted_at, j.lease, j.leased_at, j.lease_until, j.awaited,
         j.metadata, j.holder, j.holder_secret, j.owner, j.session_left,
         j.asker, j.asker_owner, j.asker_busy, j.asker_dead, j.asker_expired, j.lapsed, j.done,
         (j.done OR j.lapsed) AS free, NOT (j.done OR j.lapsed OR j.unsure) AS live
    FROM judged j
)`

// shown are the columns of a [sight], from "view".
var shown = `
       v.key IS NULL AS unknown, v.live, v.free, v.done, v.asker_busy, v.asker_dead, v.asker_expired,
       CASE WHEN NOT (v.free OR v.live) THEN v.session END AS doubted, v.holder IS NULL AS doubted_missing,
       coalesce(v.token, 0) AS token, coalesce(v.session, 0) AS number, v.request_id, v.granted_at, v.lease,
       ` + left("v.leased_at", "v.lease_until") + ` AS lease_left, v.metadata,
       v.holder_secret::text AS holder_secret, v.owner, v.session_left`

// sight is what a statement saw of a key.
type sight struct {
	// Unknown: the key has no row yet.
	Unknown bool
	// Live: the grant stands. Free: it is over, or there is none. Neither: it has to be found out; see Doubted.
	Live, Free bool
	// Done: it is over for good, whatever another server's estimate of the time is; or there is none.
	Done bool
	// AskerBusy: somebody else has the asking session's row locked, and is to be waited for. AskerDead: no session of that id
	// lives. AskerExpired is its number if it has expired and is not ended yet.
	AskerBusy    bool
	AskerDead    bool
	AskerExpired *int64
	// Doubted is the number of the holder's session if that has expired and is not ended yet, or was not seen at all.
	Doubted        *int64
	DoubtedMissing bool

	Token int64
	// Number is that of the holder's session.
	Number       int64
	RequestID    *string
	GrantedAt    *time.Time
	Lease        *time.Duration
	LeaseLeft    *time.Duration
	Metadata     []byte
	HolderSecret *string
	Owner        *string
	SessionLeft  *time.Duration
}

// heldBy reports whether the live grant is one of the session.
func (v *sight) heldBy(session lock.SessionID) bool {
	return v.Live && v.session().Equal(session)
}

// is reports whether the live grant is that of the session and the token.
func (v *sight) is(session lock.SessionID, token lock.Token) bool {
	return v.heldBy(session) && lock.Token(v.Token) == token
}

// named reports whether the live grant is the one that the session and the request id name.
func (v *sight) named(session lock.SessionID, id lock.RequestID) bool {
	return v.heldBy(session) && deref(v.RequestID) == string(id)
}

func (v *sight) session() lock.SessionID { return sessionID(deref(v.HolderSecret)) }

// grant is the grant as the statement saw it; trip is how long the answer may have been under way.
func (v *sight) grant(key lock.Key, trip time.Duration) (lock.Grant, error) {
	metadata, err := decodeMetadata(v.Metadata)
	if err != nil {
		return lock.Grant{}, err
	}
	return lock.Grant{
		Key: key, Session: v.session(), Owner: lock.Owner(deref(v.Owner)), Token: lock.Token(v.Token),
		RequestID: lock.RequestID(deref(v.RequestID)), AcquiredAt: deref(v.GrantedAt),
		Lease: deref(v.Lease), LeaseRemaining: max(deref(v.LeaseLeft)-trip, 0), Metadata: metadata,
	}, nil
}

// aboutToEnd is when to look again for a grant that is past its time, and that nobody has found over yet.
const aboutToEnd = 100 * time.Millisecond

// holder is who stands in the way.
func (v *sight) holder() lock.Holder {
	h := lock.Holder{
		Owner: lock.Owner(deref(v.Owner)), Session: v.session(), Token: lock.Token(v.Token),
		AcquiredAt: deref(v.GrantedAt),
	}
	if v.SessionLeft == nil || v.Lease != nil && v.LeaseLeft == nil {
		return h
	}
	within := *v.SessionLeft
	if v.LeaseLeft != nil {
		within = min(within, *v.LeaseLeft)
	}
	h.FreeWithin = max(within, aboutToEnd)
	return h
}

func deref[V any](p *V) V {
	if p == nil {
		var zero V
		return zero
	}
	return *p
}

// encodeMetadata gives the text of a jsonb; nil for none.
func encodeMetadata(metadata map[string]string) *string {
	if len(metadata) == 0 {
		return nil
	}
	text, err := json.Marshal(metadata)
	if err != nil {
		panic(err) // strings always encode
	}
	s := string(text)
	return &s
}

func decodeMetadata(text []byte) (map[string]string, error) {
	if len(text) == 0 {
		return nil, nil
	}
	var metadata map[string]string
	if err := json.Unmarshal(text, &metadata); err != nil {
		return nil, lock.Contention("the store holds metadata that cannot be read", false, err)
	}
	return metadata, nil
}
