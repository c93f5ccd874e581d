package postgres

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/fencelock/fencelock/core/lock"
	"github.com/fencelock/fencelock/core/port"
)

const (
	// maxHeartbeatAge is the age at which a heartbeat is dropped: a server that was frozen must not
	// renew for a client that may have been told of its session's death.
	maxHeartbeatAge = time.Second
	// maxBeats is how many heartbeats one statement carries at most.
	maxBeats = 500
	// beatTries is how often a heartbeat goes with the others. In between it waits for shortBeat, without a connection: grants to the
	// session hold its row for a moment.
	beatTries, shortBeat = 4, 5 * time.Millisecond
	// longBeat is its wait for the row where that was too short. One heartbeat at a time waits so long, and leaves a connection to the others.
	longBeat = 250 * time.Millisecond
)

// errLate is in the chain of causes where the database came to a heartbeat so late that nothing can be said of the session's time.
var errLate = errors.New("the database came to the heartbeat too late")

// heartbeats renews sessions, or ends those that have expired. The rows are locked first: the time is taken when nobody
// else can decide about the sessions any more. The estimate of $1 is older by then, by as long as the statement has waited,
// for the table say. After two seconds it says nothing any more, and neither is done.
//
// $1 to $3 are a [reading], $4 is the longest wait for a row, and $5 are the secrets, each there once.
func heartbeats(lock string) string {
	return `
WITH patience AS MATERIALIZED (SELECT set_config('lock_timeout', $4, true)),
session AS MATERIALIZED (
  SELECT ` + sessionColumns + `
    FROM patience CROSS JOIN fencelock.lock_session s WHERE s.secret = ANY ($5::text[]::uuid[])
   ORDER BY s.id
     ` + lock + `
),
judged AS MATERIALIZED (
  SELECT x.id, x.secret, x.ended_at IS NULL AS lives, ` + over("x.renewed_at", "x.expires_at") + ` AS expired,
         clock_timestamp() > $1::timestamptz + interval '2 seconds' AS late
    FROM session x
),
renewed AS (
  UPDATE fencelock.lock_session s SET renewed_at = clock_timestamp(), expires_at = clock_timestamp() + s.ttl
    FROM judged j WHERE s.id = j.id AND j.lives AND NOT j.late AND NOT j.expired
  RETURNING s.id, s.ttl, s.expires_at
),
buried AS (
  UPDATE fencelock.lock_session s SET ended_at = clock_timestamp()
    FROM judged j WHERE s.id = j.id AND j.lives AND NOT j.late AND j.expired
)
SELECT a.place, r.ttl, r.expires_at - clock_timestamp() AS remaining,
       j.id IS NULL AND EXISTS (SELECT FROM fencelock.lock_session x WHERE x.secret = a.secret::uuid) AS busy,
       CASE WHEN j.lives AND j.late THEN clock_timestamp() END AS late
  FROM pg_catalog.unnest($5::text[]) WITH ORDINALITY AS a(secret, place)
  LEFT JOIN judged j ON j.secret = a.secret::uuid
  LEFT JOIN renewed r ON r.id = j.id
 ORDER BY a.place`
}

var (
	// heartbeatsPassing waits for no row.
	heartbeatsPassing = heartbeats("FOR UPDATE OF s SKIP LOCKED")
	heartbeatsWaiting = heartbeats("FOR UPDATE OF s")
)

// pulse is the answer to a heartbeat: TTL and Remaining of a session that was renewed. Busy: somebody else has its row. Late is what
// the database's clock showed where it was too late. None of them: the session is dead.
type pulse struct {
	Place          int64
	TTL, Remaining *time.Duration
	Busy           bool
	Late           *time.Time
}

// Heartbeat implements port.SessionRegistry. Heartbeats have connections of their own, and go together.
func (s *Store) Heartbeat(ctx context.Context, id lock.SessionID) (port.Vitals, error) {
	received := s.clock.elapsed()
	ctx, cancel := s.call(ctx)
	defer cancel()
	defer s.gate.claim(id)()
	for range beatTries {
		v, err := s.beats.pass(ctx, id, received)
		if !isLocked(err) && !errors.Is(err, errLate) {
			return v, err
		}
		select {
		case <-time.After(shortBeat):
		case <-ctx.Done():
			return port.Vitals{}, err
		}
	}
	return s.beatAlone(ctx, id, received)
}

// beatAlone waits for the session's row, in the slow lane.
func (s *Store) beatAlone(ctx context.Context, id lock.SessionID, received time.Duration) (port.Vitals, error) {
	leave, err := slow(ctx, s.gate.beats)
	if err != nil {
		return port.Vitals{}, err
	}
	defer leave()
	conn, err := s.pools.beats.Acquire(ctx)
	if err != nil {
		return port.Vitals{}, translate(err, reads)
	}
	defer conn.Release()
	b := &beat{id: id, received: received, answered: make(chan struct{})}
	if s.clock.elapsed()-received > maxHeartbeatAge {
		return port.Vitals{}, errTooOld()
	}
	s.renew(ctx, conn, heartbeatsWaiting, longBeat, []*beat{b})
	return b.vitals, b.err
}

func errTooOld() error {
	return lock.Contention("the heartbeat was too old to be passed on", false, nil)
}

// beats are the heartbeats that wait to be sent. Whenever a connection is free, all that wait go in one statement: so one never waits for
// others to come, and however many there are, they wait for no more than two statements.
type beats struct {
	store *Store
	// ready holds something while some wait, unless a sender is about to take them.
	ready chan struct{}

	mu      sync.Mutex
	waiting []*beat
	// of finds those by their sessions.
	of map[lock.SessionID]*beat
}

// beat is a heartbeat of a session, for all who asked for it until it was taken to be sent.
type beat struct {
	id lock.SessionID
	// received is when the last of them asked; askers is how many of them have not left.
	received time.Duration
	askers   int
	// volley is what it was sent with; nil until then.
	volley *volley

	// answered is closed when the answer is there.
	answered chan struct{}
	vitals   port.Vitals
	err      error
}

func (b *beat) answer(vitals port.Vitals, err error) {
	b.vitals, b.err = vitals, err
	close(b.answered)
}

// volley is what goes in one statement; wanted counts the beats that somebody still waits for.
type volley struct {
	beats  []*beat
	wanted int
	cancel context.CancelFunc
}

// newBeats also starts the senders, one for each connection, which end with the Store.
func newBeats(s *Store) *beats {
	b := &beats{store: s, ready: make(chan struct{}, 1), of: map[lock.SessionID]*beat{}}
	for range beatConnections {
		s.work.Go(b.send)
	}
	return b
}

// pass has a heartbeat sent with those that wait, and waits for the answer.
func (b *beats) pass(ctx context.Context, id lock.SessionID, received time.Duration) (port.Vitals, error) {
	own := b.join(id, received)
	select {
	case <-own.answered:
		return own.vitals, own.err
	case <-ctx.Done():
	}
	sent, last := b.leave(own)
	if last {
		<-own.answered // soon: it was cancelled
		return own.vitals, own.err
	}
	return port.Vitals{}, lock.Contention(messageLate, sent, ctx.Err())
}

func (b *beats) join(id lock.SessionID, received time.Duration) *beat {
	b.mu.Lock()
	defer b.mu.Unlock()
	own := b.of[id]
	if own == nil {
		own = &beat{id: id, answered: make(chan struct{})}
		b.of[id] = own
		b.waiting = append(b.waiting, own)
	}
	own.askers++
	own.received = max(own.received, received)
	b.wake()
	return own
}

func (b *beats) wake() {
	select {
	case b.ready <- struct{}{}:
	default:
	}
}

// leave is for an asker that waits no more. It reports whether the heartbeat was sent, and whether what it was sent
// with is cancelled, since nobody waits for that any more.
func (b *beats) leave(own *beat) (sent, last bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	own.askers--
	v := own.volley
	switch {
	case own.askers > 0:
	case v != nil:
		if v.wanted--; v.wanted == 0 {
			v.cancel()
			last = true
		}
	case b.of[own.id] == own:
		delete(b.of, own.id)
		b.waiting = slices.DeleteFunc(b.waiting, func(other *beat) bool { return other == own })
	}
	return v != nil, last
}

// send is a sender, until the Store ends.
func (b *beats) send() {
	for {
		select {
		case <-b.ready:
			b.sendWaiting()
		case <-b.store.life.Done():
			return
		}
	}
}

// sendWaiting waits for a connection, and sends what waits by then.
func (b *beats) sendWaiting() {
	ctx, cancel := b.store.call(b.store.life)
	defer cancel()
	conn, err := b.store.pools.beats.Acquire(ctx)
	set := b.take(cancel)
	if err != nil {
		for _, own := range set {
			own.answer(port.Vitals{}, translate(err, reads))
		}
		return
	}
	defer conn.Release()
	if len(set) > 0 {
		b.store.renew(ctx, conn, heartbeatsPassing, longBeat, set)
	}
}

// take takes what waits, in the order of arrival, but what is too old.
func (b *beats) take(cancel context.CancelFunc) []*beat {
	now := b.store.clock.elapsed()
	b.mu.Lock()
	defer b.mu.Unlock()
	n := min(len(b.waiting), maxBeats)
	v := &volley{cancel: cancel}
	for _, own := range b.waiting[:n] {
		delete(b.of, own.id)
		if now-own.received > maxHeartbeatAge {
			own.answer(port.Vitals{}, errTooOld())
			continue
		}
		own.volley = v
		v.beats = append(v.beats, own)
	}
	v.wanted = len(v.beats)
	if b.waiting = slices.Delete(b.waiting, 0, n); len(b.waiting) > 0 {
		b.wake()
	}
	return v.beats
}

// renew sends one statement for a set of heartbeats, and answers each of them.
func (s *Store) renew(ctx context.Context, conn *pgxpool.Conn, sql string, patience time.Duration, set []*beat) {
	sent := s.clock.elapsed()
	pulses, err := s.pulses(ctx, conn, sql, patience, set)
	if len(set) > 1 && isData(err) {
		// Somebody has put into a session's row what cannot be reckoned with. The others are not to suffer from that.
		s.renew(ctx, conn, sql, patience, set[:len(set)/2])
		s.renew(ctx, conn, sql, patience, set[len(set)/2:])
		return
	}
	received := s.clock.elapsed()
	for i, own := range set {
		switch {
		case err != nil:
			own.answer(port.Vitals{}, err)
		case pulses[i].Busy:
			own.answer(port.Vitals{}, lock.Contention("another transaction holds the session's row", false, errRowLocked))
		case pulses[i].Late != nil:
			// Or its clock was set forward, which is known now.
			s.noteClock(sent, received, *pulses[i].Late)
			own.answer(port.Vitals{}, lock.Contention(messageLate, false, errLate))
		case pulses[i].TTL == nil:
			own.answer(port.Vitals{}, lock.ErrSessionDead)
		default:
			own.answer(port.Vitals{TTL: *pulses[i].TTL, Remaining: max(deref(pulses[i].Remaining)-(received-sent), 0)}, nil)
		}
	}
}

// pulses returns as many as there are beats in the set.
func (s *Store) pulses(
	ctx context.Context, conn *pgxpool.Conn, sql string, patience time.Duration, set []*beat,
) ([]pulse, error) {
	secrets := make([]string, len(set))
	for i, own := range set {
		secrets[i] = own.id.Reveal()
	}
	rows, err := conn.Query(ctx, sql, append(s.clock.reading().args(), milliseconds(patience), secrets)...)
	if err != nil {
		return nil, translate(err, writes)
	}
	pulses, err := pgx.CollectRows(rows, pgx.RowToStructByName[pulse])
	if err != nil {
		return nil, translate(err, writes)
	}
	return pulses, confirm(conn.Conn())
}

// isData reports whether the database says that it cannot reckon with a value.
func isData(err error) bool {
	answer, ok := errors.AsType[*pgconn.PgError](err)
	return ok && strings.HasPrefix(answer.Code, "22")
}
