package postgres_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/fencelock/fencelock/core/lock"
	"github.com/fencelock/fencelock/core/port"
)

// renew is a heartbeat's effect on a session, by hand.
const renew = `UPDATE fencelock.lock_session SET renewed_at = clock_timestamp(), expires_at = clock_timestamp() + ttl
 WHERE secret = $1::uuid`

// TestTakeOverWaitsForAHeartbeat: a heartbeat has renewed a session whose time was up, and is not committed when an acquire finds
// that time in the store.
func TestTakeOverWaitsForAHeartbeat(t *testing.T) {
	t.Parallel()
	p := idlePlace(t) // nobody else ends what has expired
	other := p.open(lock.MaxTTL)
	var holder lock.Session
	for {
		holder = p.open(lock.MaxTTL)
		g := p.grab("renewed", holder)
		p.expire(holder)
		heartbeat := p.begin(renew, holder.ID.Reveal())
		c := aside(func() (port.Attempt, error) { return p.TryInsert(unhurried(t), request(g.Key, other.ID)) })
		p.waitsUnless(t, func() bool { return len(c) > 0 })
		heartbeat.commit()
		a, err := answered(t, "the heartbeat is committed", c)
		if lock.IsRetryable(err) { // the machine was too busy to wait for that
			p.release(g)
			continue
		}
		if err != nil || a.Granted || a.Holder.Token != g.Token {
			t.Errorf("acquire: %+v, %v, want held under token %d", a, err, g.Token)
		}
		break
	}
	if locks, err := p.LocksOf(t.Context(), holder.ID); err != nil || len(locks) != 1 {
		t.Errorf("the renewed session has %d locks, %v, want 1", len(locks), err)
	}

	// The naive take-over looks at the session's time, and nobody needs to end the session.
	p.expire(holder)
	heartbeat := p.begin(renew, holder.ID.Reveal())
	p.exec(`
UPDATE fencelock.lock_entry e SET token = nextval('fencelock.fencing_token_seq'), session = o.id
  FROM fencelock.lock_session h, fencelock.lock_session o
 WHERE e.key = 'renewed' AND h.id = e.session AND h.expires_at <= clock_timestamp() AND o.secret = $1::uuid`, other.ID.Reveal())
	heartbeat.commit()
	if v, err := p.Heartbeat(t.Context(), holder.ID); err != nil || v.Remaining <= 0 {
		t.Errorf("heartbeat: %+v, %v", v, err)
	}
	if locks, err := p.LocksOf(t.Context(), other.ID); err != nil || len(locks) != 1 {
		t.Errorf("the naive take-over did not take the key of a session that lives (%v): this test shows nothing", err)
	}
}

// TestHeartbeatWaitsForATakeOver: a session is being ended since its time is up when its heartbeat comes.
func TestHeartbeatWaitsForATakeOver(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	holder, other := p.open(lock.MaxTTL), p.open(lock.MaxTTL)
	g := p.grab("ended", holder)
	for {
		end := p.begin("UPDATE fencelock.lock_session SET ended_at = clock_timestamp() WHERE secret = $1::uuid", holder.ID.Reveal())
		c := aside(func() (port.Vitals, error) { return p.Heartbeat(t.Context(), holder.ID) })
		p.waitsUnless(t, func() bool { return len(c) > 0 })
		end.commit()
		v, err := answered(t, "the session has ended", c)
		if lock.IsRetryable(err) {
			// The machine was too busy for the heartbeat to wait for that; the session may not have ended twice.
			p.exec("UPDATE fencelock.lock_session SET ended_at = NULL WHERE secret = $1::uuid", holder.ID.Reveal())
			continue
		}
		if !errors.Is(err, lock.ErrSessionDead) {
			t.Errorf("heartbeat: %+v, %v, want dead", v, err)
		}
		break
	}
	if next := p.grab("ended", other); next.Token <= g.Token {
		t.Errorf("token %d after %d", next.Token, g.Token)
	}
}

// TestNobodyBothLivesAndLosesALock lets heartbeats and acquires meet at the very moment at which a session's time is up.
func TestNobodyBothLivesAndLosesALock(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	other := p.open(lock.MaxTTL)
	second := p.another()
	lived, died := 0, 0
	for round := range 60 {
		holder := p.open(lock.MaxTTL)
		g := p.grab(fmt.Sprintf("moment/%d", round), holder)
		p.exec(`UPDATE fencelock.lock_session
   SET renewed_at = clock_timestamp() - ttl + $2, expires_at = clock_timestamp() + $2 WHERE secret = $1::uuid`,
			holder.ID.Reveal(), time.Duration(round%6)*time.Millisecond)
		beat := aside(func() (port.Vitals, error) { return second.Heartbeat(t.Context(), holder.ID) })
		a, err := p.TryInsert(unhurried(t), request(g.Key, other.ID))
		if err != nil {
			t.Fatal(err)
		}
		_, err = answered(t, "heartbeat", beat)
		switch {
		case err == nil && a.Granted:
			t.Fatalf("the session lives, and another has its key under token %d", a.Grant.Token)
		case err == nil:
			lived++
			if locks, err := p.LocksOf(t.Context(), holder.ID); err != nil || len(locks) != 1 {
				t.Errorf("the session lives with %d locks, %v, want 1", len(locks), err)
			}
		case errors.Is(err, lock.ErrSessionDead):
			died++
			if !a.Granted {
				p.grabWith(request(g.Key, other.ID))
			}
		case !lock.IsRetryable(err):
			t.Errorf("heartbeat: %v", err)
		}
	}
	t.Logf("of the sessions %d lived and %d died", lived, died)
}

// TestWhoWasNotSeenIsNotDead: a statement waits for the row of a key. Meanwhile a session is opened and is granted the
// key. What the statement sees of other rows is older than that.
func TestWhoWasNotSeenIsNotDead(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	early := p.open(lock.MaxTTL)
	grant := func(what func() (lock.Token, error)) (got, want lock.Token) {
		p.exec("DELETE FROM fencelock.lock_entry")
		p.tombstone("unseen")
		locked := p.lockKey("unseen")
		c := aside(what)
		p.waits(t, 1)
		late := p.open(lock.MaxTTL)
		locked.exec(`
UPDATE fencelock.lock_entry e SET token = nextval('fencelock.fencing_token_seq'), session = s.id, request_id = 'late', granted_at = now()
  FROM fencelock.lock_session s WHERE e.key = 'unseen' AND s.secret = $1::uuid`, late.ID.Reveal())
		if err := locked.tx.QueryRow(t.Context(), "SELECT token FROM fencelock.lock_entry WHERE key = 'unseen'").Scan(&want); err != nil {
			t.Fatal(err)
		}
		locked.commit()
		got, err := answered(t, "the key is granted", c)
		if err != nil {
			t.Fatal(err)
		}
		return got, want
	}
	got, want := grant(func() (lock.Token, error) {
		a, err := p.TryInsert(unhurried(t), request(key(t, "unseen"), early.ID))
		if a.Granted {
			return a.Grant.Token, err
		}
		return a.Holder.Token, err
	})
	if got != want {
		t.Errorf("the acquire has token %d, want to be told of the holder's %d", got, want)
	}
	got, want = grant(func() (token lock.Token, err error) {
		err = p.raw.QueryRow(t.Context(), `
WITH entry AS MATERIALIZED (SELECT key, session FROM fencelock.lock_entry WHERE key = 'unseen' FOR UPDATE)
UPDATE fencelock.lock_entry e SET token = nextval('fencelock.fencing_token_seq')
  FROM entry LEFT JOIN fencelock.lock_session h ON h.id = entry.session AND h.ended_at IS NULL
 WHERE e.key = entry.key AND h.id IS NULL
RETURNING e.token`).Scan(&token)
		return token, err
	})
	if got <= want {
		t.Errorf("the naive statement has token %d, and the holder %d: this test shows nothing", got, want)
	}
}

// TestWhoIsDeletedIsDead: nobody can be told any more that a session which was deleted by hand is over.
func TestWhoIsDeletedIsDead(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	holder, other := p.open(lock.MaxTTL), p.open(lock.MaxTTL)
	g := p.grab("deleted", holder)
	p.exec("DELETE FROM fencelock.lock_session WHERE secret = $1::uuid", holder.ID.Reveal())
	_, err := p.Heartbeat(t.Context(), holder.ID)
	expect(t, "heartbeat", err, lock.ErrSessionDead)
	if ok, err := p.DeleteIfOwner(t.Context(), g.Key, holder.ID, g.Token); ok || err != nil {
		t.Errorf("release: %v, %v", ok, err)
	}
	if next := p.grab("deleted", other); next.Token <= g.Token {
		t.Errorf("token %d after %d", next.Token, g.Token)
	}
}

// TestCloseOvertakesAGrant: a session is closed while its acquire waits for the row of the key. What the waiting statement has
// seen of the session is older than that.
func TestCloseOvertakesAGrant(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	during := func(do func(s lock.Session) (bool, error)) (bool, error) {
		session := p.open(lock.MaxTTL)
		p.exec("DELETE FROM fencelock.lock_entry")
		p.tombstone("closed")
		locked := p.lockKey("closed")
		c := aside(func() (bool, error) { return do(session) })
		p.waits(t, 1)
		if n, err := p.CloseSession(t.Context(), session.ID); n != 0 || err != nil {
			t.Fatalf("close: %d, %v", n, err)
		}
		locked.commit()
		return answered(t, "the row is free", c)
	}
	granted, err := during(func(s lock.Session) (bool, error) {
		a, err := p.TryInsert(unhurried(t), request(key(t, "closed"), s.ID))
		return a.Granted, err
	})
	if granted || !errors.Is(err, lock.ErrSessionDead) {
		t.Errorf("acquire: granted %v, %v, want dead", granted, err)
	}
	granted, err = during(func(s lock.Session) (bool, error) {
		tag, err := p.raw.Exec(t.Context(), `
WITH entry AS MATERIALIZED (SELECT key FROM fencelock.lock_entry WHERE key = 'closed' FOR UPDATE)
UPDATE fencelock.lock_entry e SET token = nextval('fencelock.fencing_token_seq')
  FROM entry, fencelock.lock_session s
 WHERE e.key = entry.key AND s.secret = $1::uuid AND s.ended_at IS NULL`, s.ID.Reveal())
		return tag.RowsAffected() == 1, err
	})
	if !granted || err != nil {
		t.Errorf("the naive statement granted nothing to the dead session (%v): this test shows nothing", err)
	}
}

// TestCloseCountsAGrantUnderWay: the end of a session waits for a grant to it that is not committed yet, and so counts it.
func TestCloseCountsAGrantUnderWay(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	session := p.open(lock.MaxTTL)
	p.grab("there", session)
	p.tombstone("under/way")
	grant := p.begin("SELECT FROM fencelock.lock_session WHERE secret = $1::uuid FOR SHARE", session.ID.Reveal())
	grant.exec(`
UPDATE fencelock.lock_entry e SET token = nextval('fencelock.fencing_token_seq'), session = s.id, request_id = 'r', granted_at = now()
  FROM fencelock.lock_session s WHERE e.key = 'under/way' AND s.secret = $1::uuid`, session.ID.Reveal())
	c := aside(func() (int, error) { return p.CloseSession(unhurried(t), session.ID) })
	p.waits(t, 1)
	grant.commit()
	if n, err := answered(t, "the grant is committed", c); n != 2 || err != nil {
		t.Errorf("close: %d, %v, want 2", n, err)
	}
}

// TestCloseCountsOnce: a session is closed while somebody else closes it.
func TestCloseCountsOnce(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	session := p.open(lock.MaxTTL)
	p.grab("once", session)
	first := p.begin("UPDATE fencelock.lock_session SET ended_at = clock_timestamp() WHERE secret = $1::uuid", session.ID.Reveal())
	second := aside(func() (int, error) { return p.CloseSession(unhurried(t), session.ID) })
	p.waits(t, 1)
	first.commit()
	if n, err := answered(t, "the session is closed", second); n != 0 || err != nil {
		t.Errorf("close: %d, %v, want 0", n, err)
	}
}

// TestCloseCountsWhatLives: neither lapsed nor condemned grants are counted, nor what an expired session had.
func TestCloseCountsWhatLives(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	expired, session := p.open(lock.MaxTTL), p.open(lock.MaxTTL)
	p.grab("condemned", session)
	if _, err := p.RaiseFloor(t.Context(), port.FloorRequest{Operator: "op", Reason: "because"}); err != nil {
		t.Fatal(err)
	}
	p.grab("lives", session)
	leased := request(key(t, "lapsed"), session.ID)
	leased.Lease = time.Minute
	p.grabWith(leased)
	p.lapse("lapsed")
	p.grab("expired", expired)
	p.expire(expired)
	for s, want := range map[*lock.Session]int{&session: 1, &expired: 0} {
		for range 2 {
			if n, err := p.CloseSession(t.Context(), s.ID); n != want || err != nil {
				t.Errorf("close: %d, %v, want %d", n, err, want)
			}
			want = 0
		}
	}
	_, err := p.Heartbeat(t.Context(), expired.ID)
	expect(t, "heartbeat", err, lock.ErrSessionDead)
}
