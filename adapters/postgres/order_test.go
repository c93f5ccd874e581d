package postgres_test

import (
	"testing"
	"time"

	"github.com/fencelock/fencelock/core/lock"
	"github.com/fencelock/fencelock/core/port"
)

// nextNumber draws a token as another grant would.
const nextNumber = "SELECT nextval('fencelock.fencing_token_seq')"

// taken is what a statement under test wrote to the row of its key.
type taken struct {
	token int64
	at    time.Time
}

// acquired carries an acquire of the key out and returns what it wrote.
func (p *place) acquired(name string, session lock.Session) func() (taken, error) {
	return func() (taken, error) {
		a, err := p.TryInsert(unhurried(p.t), request(key(p.t, name), session.ID))
		return taken{int64(a.Grant.Token), a.Grant.AcquiredAt}, err
	}
}

// naively carries a statement out that takes number and time as one would at first.
func (p *place) naively(sql string, args ...any) func() (taken, error) {
	return func() (t taken, err error) {
		err = p.raw.QueryRow(p.t.Context(), sql, args...).Scan(&t.token, &t.at)
		return t, err
	}
}

// tombstone makes the row of a key that nobody holds.
func (p *place) tombstone(name string) {
	p.t.Helper()
	p.exec("INSERT INTO fencelock.lock_entry (namespace, key, idle_since) VALUES ('default', $1, now())", name)
}

// TestNumberAndTimeAreTakenAfterTheWait: a statement waits for a row that somebody has only locked. The database has
// evaluated what the statement writes before it meets the lock.
func TestNumberAndTimeAreTakenAfterTheWait(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	session := p.open(lock.MaxTTL)
	during := func(do func() (taken, error)) (got taken, number int64, free time.Time) {
		p.exec("DELETE FROM fencelock.lock_entry")
		p.tombstone("waited")
		locked := p.lockKey("waited")
		c := aside(do)
		p.waits(t, 1)
		number = one[int64](p, nextNumber) // of a grant of another key
		free = one[time.Time](p, "SELECT clock_timestamp()")
		locked.commit()
		got, err := answered(t, "the row is free", c)
		if err != nil {
			t.Fatal(err)
		}
		return got, number, free
	}
	got, number, free := during(p.acquired("waited", session))
	if got.token <= number || got.at.Before(free) {
		t.Errorf("token %d at %v, want one above %d after %v", got.token, got.at, number, free)
	}
	got, number, free = during(p.naively(`
UPDATE fencelock.lock_entry SET token = nextval('fencelock.fencing_token_seq'), granted_at = clock_timestamp()
 WHERE namespace = 'default' AND key = 'waited'
RETURNING token, granted_at`))
	if got.token > number || !got.at.Before(free) {
		t.Errorf("the naive statement took %d at %v, after its wait: this test shows nothing", got.token, got.at)
	}
}

// TestNumberIsTakenAfterAnotherGrant: a statement waits for a row that another grant changes meanwhile. The database evaluates
// again what the statement writes, but not its sub-selects.
func TestNumberIsTakenAfterAnotherGrant(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	session := p.open(lock.MaxTTL)
	during := func(do func() (taken, error)) (got taken, before int64) {
		p.exec("DELETE FROM fencelock.lock_entry")
		p.tombstone("granted")
		other := p.lockKey("granted")
		c := aside(do)
		p.waits(t, 1)
		before = one[int64](p, nextNumber)
		other.exec("UPDATE fencelock.lock_entry SET token = $1 WHERE key = 'granted'", before) // granted, and released
		other.commit()
		got, err := answered(t, "the row is free", c)
		if err != nil {
			t.Fatal(err)
		}
		return got, before
	}
	if got, before := during(p.acquired("granted", session)); got.token <= before {
		t.Errorf("token %d after %d", got.token, before)
	}
	got, before := during(p.naively(`
UPDATE fencelock.lock_entry SET token = (SELECT nextval('fencelock.fencing_token_seq')), granted_at = clock_timestamp()
 WHERE namespace = 'default' AND key = 'granted'
RETURNING token, granted_at`))
	if got.token > before {
		t.Errorf("the naive statement took %d after %d: this test shows nothing", got.token, before)
	}
}

// TestNumberIsTakenAfterTheRowIsThere: a statement waits for another one that makes the row of the key, is granted it, releases
// it, and takes the row away.
func TestNumberIsTakenAfterTheRowIsThere(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	session := p.open(lock.MaxTTL)
	during := func(do func() (taken, error)) (got taken, before int64) {
		p.exec("DELETE FROM fencelock.lock_entry")
		other := p.begin("INSERT INTO fencelock.lock_entry (namespace, key) VALUES ('default', 'deleted')")
		c := aside(do)
		p.waits(t, 1)
		before = one[int64](p, nextNumber)
		other.exec("UPDATE fencelock.lock_entry SET token = $1 WHERE key = 'deleted'", before)
		other.exec("DELETE FROM fencelock.lock_entry WHERE key = 'deleted'")
		other.commit()
		got, err := answered(t, "the row is gone", c)
		if err != nil {
			t.Fatal(err)
		}
		return got, before
	}
	if got, before := during(p.acquired("deleted", session)); got.token <= before {
		t.Errorf("token %d after %d", got.token, before)
	}
	got, before := during(p.naively(`
INSERT INTO fencelock.lock_entry (namespace, key, token, granted_at)
VALUES ('default', 'deleted', nextval('fencelock.fencing_token_seq'), clock_timestamp())
ON CONFLICT (namespace, key) DO NOTHING
RETURNING token, granted_at`))
	if got.token > before {
		t.Errorf("the naive statement took %d after %d: this test shows nothing", got.token, before)
	}
}

// TestEveryNumberIsTakenAfterTheWait: as for grants, for all else that takes a number or a time.
func TestEveryNumberIsTakenAfterTheWait(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	holder, taker := p.open(lock.MaxTTL), p.open(lock.MaxTTL)
	req := request(key(t, "all"), holder.ID)
	req.Lease = time.Minute
	during := func(what string, do func(g lock.Grant) (taken, error)) {
		g := p.grabWith(req)
		locked := p.lockKey("all")
		c := aside(func() (taken, error) { return do(g) })
		p.waits(t, 1)
		number := one[int64](p, nextNumber)
		free := one[time.Time](p, "SELECT clock_timestamp()")
		locked.commit()
		got, err := answered(t, what, c)
		if err != nil || got.token <= number || got.at.Before(free) {
			t.Errorf("%s: number %d at %v, %v, want one above %d after %v", what, got.token, got.at, err, number, free)
		}
		if _, err := p.Revoke(unhurried(t), port.RevokeRequest{Key: g.Key, Operator: "op", Reason: "next"}); err != nil && what != "revoke" {
			t.Fatal(err)
		}
	}
	during("handoff", func(g lock.Grant) (taken, error) {
		next, err := p.Handoff(unhurried(t), port.GrantRef{Key: g.Key, Session: g.Session, Token: g.Token}, request(g.Key, taker.ID))
		return taken{int64(next.Token), next.AcquiredAt}, err
	})
	during("revoke", func(g lock.Grant) (taken, error) {
		r, err := p.Revoke(unhurried(t), port.RevokeRequest{Key: g.Key, Operator: "op", Reason: "because"})
		return taken{int64(r.Floor), r.At}, err
	})
	during("extend", func(g lock.Grant) (taken, error) {
		longer, err := p.Extend(unhurried(t), g.Key, g.Session, g.Token, 2*time.Minute)
		if longer.Token != g.Token {
			t.Errorf("extended: %+v, want the token %d", longer, g.Token)
		}
		return taken{1 << 62, one[time.Time](p, "SELECT leased_at FROM fencelock.lock_entry WHERE key = 'all'")}, err
	})
}

// TestTokensRiseWhereRowsComeAndGo lets many sessions at two Stores have one key in turn, while somebody deletes its row whenever it
// is free. The order of the grants is that of their releases, which is known to be before the next grant.
func TestTokensRiseWhereRowsComeAndGo(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	stores := []*place{p, {Store: p.another(), t: t, raw: p.raw}}
	turn := make(chan lock.Token, 1) // whoever holds the key has the last token
	turn <- 0
	const sessions, rounds = 6, 15
	ended := make(chan struct{}, sessions)
	for i := range sessions {
		session, store := p.open(lock.MaxTTL), stores[i%2]
		go func() {
			defer func() { ended <- struct{}{} }()
			for range rounds {
				if err := store.have(t, key(t, "comes/and/goes"), session, turn); err != nil {
					t.Error(err)
					return
				}
			}
		}()
	}
	for len(ended) < sessions {
		p.exec("DELETE FROM fencelock.lock_entry WHERE session IS NULL")
	}
}

// have takes and releases a key that others want too, and compares the token with the last one.
func (p *place) have(t *testing.T, k lock.Key, session lock.Session, turn chan lock.Token) error {
	t.Helper()
	for {
		a, err := p.TryInsert(t.Context(), request(k, session.ID))
		if err != nil && !lock.IsRetryable(err) {
			return err
		}
		if err != nil || !a.Granted {
			continue // the row goes faster than it can be made, or another session has it
		}
		last := <-turn
		if a.Grant.Token <= last {
			t.Errorf("token %d after %d", a.Grant.Token, last)
		}
		turn <- a.Grant.Token
		_, err = p.DeleteIfOwner(t.Context(), k, session.ID, a.Grant.Token)
		return err
	}
}

// TestHeartbeatCountsFromAfterItsWait: it renews the session for the time that is left to it then, not from when it came.
func TestHeartbeatCountsFromAfterItsWait(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	session := p.open(lock.MaxTTL)
	during := func(do func() error) (renewed, free time.Time) {
		for {
			locked := p.lockSession(session)
			c := aside(func() (struct{}, error) { return struct{}{}, do() })
			p.waitsUnless(t, func() bool { return len(c) > 0 })
			free = one[time.Time](p, "SELECT clock_timestamp()")
			locked.commit()
			switch _, err := answered(t, "heartbeat", c); {
			case err == nil:
				return one[time.Time](p, "SELECT renewed_at FROM fencelock.lock_session WHERE secret = $1::uuid", session.ID.Reveal()), free
			case !lock.IsRetryable(err):
				t.Fatal(err)
			}
		}
	}
	renewed, free := during(func() error { _, err := p.Heartbeat(t.Context(), session.ID); return err })
	if renewed.Before(free) {
		t.Errorf("renewed at %v, and the row was free at %v", renewed, free)
	}
	renewed, free = during(func() error { _, err := p.raw.Exec(t.Context(), renew, session.ID.Reveal()); return err })
	if !renewed.Before(free) {
		t.Errorf("the naive statement renewed at %v, after its wait that ended at %v: this test shows nothing", renewed, free)
	}
}
