package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/fencelock/fencelock/adapters/postgres"
	"github.com/fencelock/fencelock/core/lock"
	"github.com/fencelock/fencelock/core/port"
	"github.com/fencelock/fencelock/tools/testenv"
)

// leased takes a key with a lease of a minute.
func (p *place) leased(name string, session lock.Session) lock.Grant {
	p.t.Helper()
	req := request(key(p.t, name), session.ID)
	req.Lease = time.Minute
	return p.grabWith(req)
}

// TestEndedGrantLeavesItsTokenOnly: nothing of a holder stays in the row of a key that is free.
func TestEndedGrantLeavesItsTokenOnly(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	session := p.open(lock.MaxTTL)
	for what, end := range map[string]func(g lock.Grant) (bool, error){
		"release": func(g lock.Grant) (bool, error) { return p.DeleteIfOwner(t.Context(), g.Key, g.Session, g.Token) },
		"abandon": func(g lock.Grant) (bool, error) { return p.Abandon(t.Context(), g.Key, g.Session, g.RequestID) },
		"revoke": func(g lock.Grant) (bool, error) {
			_, err := p.Revoke(t.Context(), port.RevokeRequest{Key: g.Key, Operator: "op", Reason: "because"})
			return true, err
		},
		"lapse": func(g lock.Grant) (bool, error) {
			p.lapse(what(g))
			ended, err := p.DeleteIfOwner(t.Context(), g.Key, g.Session, g.Token)
			return !ended, err
		},
	} {
		req := request(key(t, what), session.ID)
		req.Lease, req.Metadata = time.Minute, map[string]string{"job": "7"}
		g := p.grabWith(req)
		p.exec("UPDATE fencelock.lock_entry SET awaited = true WHERE key = $1", what)
		if ok, err := end(g); !ok || err != nil {
			t.Errorf("%s: %v, %v", what, ok, err)
		}
		if n := one[int](p, `
SELECT count(*) FROM fencelock.lock_entry e
 WHERE key = $1 AND token = $2 AND num_nulls(session, request_id, granted_at, lease, leased_at, lease_until, metadata) = 7
   AND idle_since IS NOT NULL AND NOT awaited AND (floor > 0) = ($1 = 'revoke')`, what, int64(g.Token)); n != 1 {
			t.Errorf("%s leaves %s", what, one[string](p, "SELECT e::text FROM fencelock.lock_entry e WHERE key = $1", what))
		}
	}
}

func what(g lock.Grant) string { return g.Key.Name() }

// TestWakeWithoutNotifications: a Store has woken its own waiters when its call returns, also where it cannot listen.
func TestWakeWithoutNotifications(t *testing.T) {
	t.Parallel()
	p := placeAt(t, postgres.Access{URL: testenv.Postgres(t).Database(t), Pooler: true}, config())
	session := p.open(lock.MaxTTL)
	for what, end := range map[string]func(g lock.Grant) error{
		"release": func(g lock.Grant) error {
			_, err := p.DeleteIfOwner(t.Context(), g.Key, g.Session, g.Token)
			return err
		},
		"abandon": func(g lock.Grant) error { _, err := p.Abandon(t.Context(), g.Key, g.Session, g.RequestID); return err },
		"revoke": func(g lock.Grant) error {
			_, err := p.Revoke(t.Context(), port.RevokeRequest{Key: g.Key, Operator: "op", Reason: "because"})
			return err
		},
		"raise": func(lock.Grant) error {
			_, err := p.RaiseFloor(t.Context(), port.FloorRequest{Operator: "op", Reason: "because"})
			return err
		},
	} {
		g := p.grab(what, session)
		w := p.Register(g.Key, g.Token)
		if err := end(g); err != nil {
			t.Errorf("%s: %v", what, err)
		}
		select {
		case <-w.Fired():
		default:
			t.Errorf("%s did not wake", what)
		}
		w.Cancel()
	}
}

// TestExtendNeverEndsEarlier: neither by a shorter lease, nor where the clock was set back since.
func TestExtendNeverEndsEarlier(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	session := p.open(lock.MaxTTL)
	g := p.leased("extended", session)
	until := func() time.Time {
		return one[time.Time](p, "SELECT lease_until FROM fencelock.lock_entry WHERE key = 'extended'")
	}
	extend := func(lease, atLeast, atMost time.Duration) {
		t.Helper()
		longer, err := p.Extend(t.Context(), g.Key, g.Session, g.Token, lease)
		if err != nil || longer.Token != g.Token || longer.Lease != time.Minute ||
			longer.LeaseRemaining < atLeast-patience || longer.LeaseRemaining > atMost {
			t.Errorf("extended by %v: %+v, %v, want %v to %v left", lease, longer, err, atLeast, atMost)
		}
	}
	first := until()
	extend(2*time.Second, time.Minute, time.Minute)
	if now := until(); !now.Equal(first) {
		t.Errorf("a shorter lease moved the end from %v to %v", first, now)
	}
	extend(5*time.Minute, 5*time.Minute, 5*time.Minute)
	extend(0, 4*time.Minute, 5*time.Minute)
	second := until()
	p.exec(`UPDATE fencelock.lock_entry SET leased_at = leased_at + interval '1 hour', lease_until = lease_until + interval '1 hour'
 WHERE key = 'extended'`) // as it looks when the clock was set back by an hour
	extend(2*time.Second, 5*time.Minute, 5*time.Minute)
	if now := until(); now.After(second.Add(patience)) || now.Before(second) {
		t.Errorf("after the clock was set back the end is %v, and was %v", now, second)
	}
}

// TestLapseIsFinal: who was told that a lease has lapsed is right also if the database's clock is set back after that.
func TestLapseIsFinal(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	session := p.open(lock.MaxTTL)
	for what, call := range map[string]func(g lock.Grant) error{
		"extend": func(g lock.Grant) error { _, err := p.Extend(t.Context(), g.Key, g.Session, g.Token, 0); return err },
		"handoff": func(g lock.Grant) error {
			_, err := p.Handoff(t.Context(), port.GrantRef{Key: g.Key, Session: g.Session, Token: g.Token}, request(g.Key, session.ID))
			return err
		},
		"revoke": func(g lock.Grant) error {
			_, err := p.Revoke(t.Context(), port.RevokeRequest{Key: g.Key, Operator: "op", Reason: "because"})
			return err
		},
	} {
		g := p.leased("lapsed/"+what, session)
		p.lapse("lapsed/" + what)
		expect(t, what, call(g), lock.ErrLost)
		p.exec(`UPDATE fencelock.lock_entry SET leased_at = clock_timestamp(), lease_until = clock_timestamp() + lease
 WHERE key = $1 AND lease IS NOT NULL`, "lapsed/"+what)
		if info, err := p.Read(t.Context(), g.Key); err != nil || info.Held {
			t.Errorf("%s: what had lapsed is held again: %+v, %v", what, info, err)
		}
	}
}

// TestOverIsToldBeforeDead: a handoff of what is over is lost whoever was to have it, and an extension by a dead session is dead.
func TestOverIsToldBeforeDead(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	session, dead := p.open(lock.MaxTTL), p.open(lock.MaxTTL)
	g, deads := p.grab("given", session), p.grab("dead", dead)
	p.expire(dead)
	to := func(g lock.Grant, session lock.Session) error {
		_, err := p.Handoff(t.Context(), port.GrantRef{Key: g.Key, Session: g.Session, Token: g.Token}, request(g.Key, session.ID))
		return err
	}
	expect(t, "handoff by a dead session", to(deads, session), lock.ErrLost)
	expect(t, "handoff to a dead session", to(g, dead), lock.ErrSessionDead)
	p.release(g)
	expect(t, "handoff of what is over, to a dead session", to(g, dead), lock.ErrLost)
	_, err := p.Extend(t.Context(), deads.Key, dead.ID, deads.Token, 0)
	expect(t, "extend by a dead session", err, lock.ErrSessionDead)
	_, _, err = p.Settle(t.Context(), deads.Key, dead.ID, deads.RequestID)
	expect(t, "settle for a dead session", err, lock.ErrSessionDead)
	if _, ok, err := p.Settle(t.Context(), g.Key, session.ID, g.RequestID); ok || err != nil {
		t.Errorf("settle what is over: %v, %v", ok, err)
	}
}

// TestSequenceThatWentBackIsNoticed by the rows of the keys alone: the Store has seen none of their tokens.
func TestSequenceThatWentBackIsNoticed(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	session := p.open(lock.MaxTTL)
	const high = 1000
	p.exec("SELECT setval('fencelock.fencing_token_seq', $1)", high)
	held, given := p.grab("held", session), p.grab("given", session)
	p.release(p.grab("free", session))
	p.exec("SELECT setval('fencelock.fencing_token_seq', 1)")

	fresh := &place{Store: p.another(), t: t, raw: p.raw}
	r, err := fresh.Revoke(t.Context(), port.RevokeRequest{Key: held.Key, Operator: "op", Reason: "because"})
	if err != nil || r.Floor <= held.Token {
		t.Errorf("revoked: %+v, %v, want a floor above %d", r, err, held.Token)
	}
	for _, name := range []string{"free", "held"} {
		another := p.another()
		_, err := another.TryInsert(t.Context(), request(key(t, name), session.ID))
		expect(t, "acquire "+name, err, lock.ErrUnsafeStore)
		_, err = another.TryInsert(t.Context(), request(key(t, "new"), session.ID))
		expect(t, "the next acquire", err, lock.ErrUnsafeStore)
	}
	_, err = fresh.Handoff(t.Context(), port.GrantRef{Key: given.Key, Session: given.Session, Token: given.Token},
		request(given.Key, session.ID))
	expect(t, "handoff", err, lock.ErrUnsafeStore)
	if _, err := fresh.Heartbeat(t.Context(), session.ID); err != nil {
		t.Errorf("heartbeat: %v", err)
	}
	fresh.release(given)
	raised, err := fresh.RaiseFloor(t.Context(), port.FloorRequest{Operator: "op", Reason: "because"})
	if err != nil || raised.Floor < r.Floor {
		t.Errorf("raised: %+v, %v, want above %d", raised, err, r.Floor)
	}
	for _, name := range []string{"free", "held", "new"} {
		if g := fresh.grab(name, session); g.Token <= raised.Floor {
			t.Errorf("token %d, floor %d", g.Token, raised.Floor)
		}
		fresh.release(p.grab(name+"/2", session))
	}
}

// TestRaisedFloor is above all that the store knows, and bounded.
func TestRaisedFloor(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	session := p.open(lock.MaxTTL)
	raise := func(above lock.Token) (port.FloorRaised, error) {
		return p.RaiseFloor(t.Context(), port.FloorRequest{Above: above, Operator: "op", Reason: "because"})
	}
	for _, above := range []lock.Token{-1, 1<<62 + 1} {
		_, err := raise(above)
		expect(t, fmt.Sprintf("raise above %d", above), err, lock.ErrInvalid)
	}
	before := p.grab("before", session)
	locked := p.lockKey("before") // is in nobody's way
	for _, above := range []lock.Token{0, 1, 500, 1 << 62} {
		raised, err := raise(above)
		if err != nil || raised.Floor < max(above, before.Token) {
			t.Fatalf("raised above %d: %+v, %v", above, raised, err)
		}
		if g := p.grab(fmt.Sprintf("above/%d", above), session); g.Token <= raised.Floor {
			t.Errorf("token %d, floor %d", g.Token, raised.Floor)
		}
	}
	locked.commit()
	_, err := p.Extend(t.Context(), before.Key, session.ID, before.Token, 0)
	expect(t, "extend what the floor ended", err, lock.ErrLost)
	if n := one[int](p, "SELECT count(*) FROM fencelock.lock_revocation WHERE key IS NULL"); n != 4 {
		t.Errorf("%d audit records, want 4", n)
	}
	if n := one[int](p, "SELECT raises FROM fencelock.lock_meta"); n != 4 {
		t.Errorf("%d raises counted, want 4", n)
	}
}

// TestRaisedFloorWaitsForWhoWrites: a transaction has written to the row of a key. The floor is not raised past it,
// and an answer that says so leaves nothing behind.
func TestRaisedFloorWaitsForWhoWrites(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	session := p.open(lock.MaxTTL)
	p.release(p.grab("written", session))
	writer := p.begin("UPDATE fencelock.lock_entry SET idle_since = now()")
	ctx, cancel := context.WithCancel(unhurried(t))
	defer cancel()
	c := aside(func() (port.FloorRaised, error) {
		return p.RaiseFloor(ctx, port.FloorRequest{Operator: "op", Reason: "because"})
	})
	p.waits(t, 1)
	before := p.backends()
	cancel()
	_, err := answered(t, "raise", c)
	refused(t, "raise", err)
	p.keeps(t, "raise", before)
	p.use(t, "other", session)
	writer.commit()
	if n := one[int](p, "SELECT raises FROM fencelock.lock_meta"); n != 0 {
		t.Errorf("%d raises, want none", n)
	}
	if _, err := p.RaiseFloor(t.Context(), port.FloorRequest{Operator: "op", Reason: "because"}); err != nil {
		t.Error(err)
	}
}

// TestGrantIsBeforeOrAfterARaisedFloor: no grant is made with a token that is condemned already.
func TestGrantIsBeforeOrAfterARaisedFloor(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	session := p.open(lock.MaxTTL)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var group sync.WaitGroup
	for i := range 4 {
		group.Go(func() {
			for n := 0; ctx.Err() == nil; n++ {
				before := one[int64](p, "SELECT floor FROM fencelock.lock_meta")
				a, err := p.TryInsert(t.Context(), request(key(t, fmt.Sprintf("k/%d/%d", i, n)), session.ID))
				if err != nil || !a.Granted {
					t.Errorf("acquire: %+v, %v", a, err)
					return
				}
				if int64(a.Grant.Token) <= before {
					t.Errorf("token %d, and the floor was %d before", a.Grant.Token, before)
				}
			}
		})
	}
	for range 30 {
		raised, err := p.RaiseFloor(t.Context(), port.FloorRequest{Operator: "op", Reason: "because"})
		if err != nil {
			t.Error(err)
			break
		}
		locks, err := p.LocksOf(t.Context(), session.ID)
		if err != nil {
			t.Error(err)
		}
		for _, g := range locks {
			if g.Token <= raised.Floor {
				t.Errorf("a grant with token %d outlives the floor %d", g.Token, raised.Floor)
			}
		}
	}
	cancel()
	group.Wait()
}

// TestAttemptIsWithdrawnBehindItself: an acquire whose call has ended can still be in the store, waiting for the row of its key. A
// withdrawal waits behind it.
func TestAttemptIsWithdrawnBehindItself(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	second := p.another()
	session := p.open(lock.MaxTTL)
	p.tombstone("withdrawn")
	req := request(key(t, "withdrawn"), session.ID)
	locked := p.lockKey("withdrawn")
	attempt := aside(func() (port.Attempt, error) { return p.TryInsert(unhurried(t), req) })
	p.waits(t, 1)
	withdrawal := aside(func() (bool, error) { return second.Abandon(unhurried(t), req.Key, req.Session, req.RequestID) })
	p.waits(t, 2)
	locked.commit()
	a, err := answered(t, "attempt", attempt)
	if err != nil || !a.Granted {
		t.Errorf("attempt: %+v, %v", a, err)
	}
	gone, err := answered(t, "withdrawal", withdrawal)
	if err != nil {
		t.Error(err)
	}
	if locks, err := p.LocksOf(t.Context(), session.ID); err != nil || (len(locks) == 0) != gone {
		t.Errorf("withdrawn %v, and %d locks, %v", gone, len(locks), err)
	}
	if !gone { // a try gave up waiting between the two
		if gone, err := second.Abandon(t.Context(), req.Key, req.Session, req.RequestID); !gone || err != nil {
			t.Errorf("withdrawal: %v, %v", gone, err)
		}
	}
}

// TestUnknownSessionsAreDead in every call, and make no rows.
func TestUnknownSessionsAreDead(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	nobody := lock.NewSessionID()
	k := key(t, "nobody")
	_, err := p.TryInsert(t.Context(), request(k, nobody))
	expect(t, "acquire", err, lock.ErrSessionDead)
	_, err = p.Extend(t.Context(), k, nobody, 1, 0)
	expect(t, "extend", err, lock.ErrSessionDead)
	_, err = p.LocksOf(t.Context(), nobody)
	expect(t, "locks", err, lock.ErrSessionDead)
	_, err = p.Heartbeat(t.Context(), nobody)
	expect(t, "heartbeat", err, lock.ErrSessionDead)
	if ok, err := p.DeleteIfOwner(t.Context(), k, nobody, 1); ok || err != nil {
		t.Errorf("release: %v, %v", ok, err)
	}
	if n, err := p.CloseSession(t.Context(), nobody); n != 0 || err != nil {
		t.Errorf("close: %d, %v", n, err)
	}
	_, err = p.Revoke(t.Context(), port.RevokeRequest{Key: k, Operator: "op", Reason: "because"})
	expect(t, "revoke", err, lock.ErrLost)
	if n := one[int](p, "SELECT count(*) FROM fencelock.lock_entry"); n != 0 {
		t.Errorf("%d rows of keys, want none", n)
	}
	if !errors.Is(err, lock.ErrLost) || one[int](p, "SELECT count(*) FROM fencelock.lock_revocation") != 0 {
		t.Error("a revocation of nothing was recorded")
	}
}
