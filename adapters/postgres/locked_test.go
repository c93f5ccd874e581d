package postgres_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/fencelock/fencelock/adapters/postgres"
	"github.com/fencelock/fencelock/core/clock"
	"github.com/fencelock/fencelock/core/lock"
	"github.com/fencelock/fencelock/core/port"
	"github.com/fencelock/fencelock/core/service"
	"github.com/fencelock/fencelock/tools/testenv"
)

// newNarrow is a place whose Store has few connections.
func newNarrow(t *testing.T, connections int) *place {
	t.Helper()
	return placeAt(t, postgres.Access{URL: narrow(t, connections)}, config())
}

// narrow is the URL of an empty database for a Store that may have so many connections.
func narrow(t *testing.T, connections int) string {
	t.Helper()
	return fmt.Sprintf("%s&pool_max_conns=%d", testenv.Postgres(t).Database(t), connections)
}

// use has a session take and release a key, and renews it.
func (p *place) use(t *testing.T, name string, session lock.Session) {
	t.Helper()
	p.release(p.grab(name, session))
	eventually(t, "a heartbeat passes", func() bool {
		_, err := p.Heartbeat(t.Context(), session.ID)
		return err == nil
	})
}

// TestLockedKeyDelaysThatKeyOnly: somebody has the row of a key locked for long. The Store has two connections, and more callers
// than that want the key.
func TestLockedKeyDelaysThatKeyOnly(t *testing.T) {
	t.Parallel()
	p := newNarrow(t, 2)
	session := p.open(lock.MaxTTL)
	g := p.grab("locked", session)
	locked := p.lockKey("locked")
	ctx, cancel := context.WithCancel(unhurried(t))
	defer cancel()
	var calls []<-chan outcome[bool]
	for range 5 {
		calls = append(calls, aside(func() (bool, error) {
			a, err := p.TryInsert(ctx, request(g.Key, session.ID))
			return a.Granted, err
		}), aside(func() (bool, error) { return p.DeleteIfOwner(ctx, g.Key, g.Session, g.Token) }))
	}
	p.waits(t, 1)
	for i := range 20 {
		if n := p.waiting(); n > 1 {
			t.Errorf("%d calls wait in the store for one key", n)
		}
		if i >= 10 {
			p.use(t, fmt.Sprintf("other/%d", i), session)
		}
	}
	if info, err := p.Read(t.Context(), g.Key); err != nil || info.Grant.Token != g.Token {
		t.Errorf("read: %+v, %v", info, err)
	}
	if _, ok, err := p.Settle(t.Context(), g.Key, g.Session, g.RequestID); !ok || err != nil {
		t.Errorf("settle: %v, %v", ok, err)
	}
	for _, c := range calls {
		if len(c) > 0 {
			a := <-c
			t.Errorf("a call about the locked key was answered: %v, %v", a.value, a.err)
		}
	}
	late, stop := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer stop()
	_, err := p.Extend(late, g.Key, g.Session, g.Token, 0)
	refused(t, "extend, at its deadline", err)
	cancel()
	for _, c := range calls {
		_, err := answered(t, "a call that was cancelled", c)
		refused(t, "a call that was cancelled", err)
	}
	locked.commit()
	p.release(g)
}

// TestLockedSessionDelaysThatSessionOnly: somebody has the row of a session locked for long. What others do goes on, also about the
// keys that it wants.
func TestLockedSessionDelaysThatSessionOnly(t *testing.T) {
	t.Parallel()
	p := newNarrow(t, 2)
	session := p.open(lock.MaxTTL)
	const stuck = 8
	var locks []*foreign
	var beats []<-chan outcome[port.Vitals]
	var wants []<-chan outcome[port.Attempt]
	for i := range stuck {
		s := p.open(lock.MaxTTL)
		locks = append(locks, p.lockSession(s))
		beats = append(beats, aside(func() (port.Vitals, error) { return p.Heartbeat(t.Context(), s.ID) }))
		wants = append(wants, aside(func() (port.Attempt, error) {
			return p.TryInsert(unhurried(t), request(key(t, fmt.Sprintf("wanted/%d", i)), s.ID))
		}))
	}
	for round := range 10 {
		for i := range stuck {
			p.use(t, fmt.Sprintf("wanted/%d", i), session)
		}
		if round == 0 {
			for _, c := range beats {
				_, err := answered(t, "a heartbeat of a locked session", c)
				refused(t, "a heartbeat of a locked session", err)
			}
		}
	}
	for _, c := range wants {
		if len(c) > 0 {
			a := <-c
			t.Errorf("an acquire of a locked session was answered: %+v, %v", a.value, a.err)
		}
	}
	for _, l := range locks {
		l.commit()
	}
	for _, c := range wants {
		if a, err := answered(t, "the session is free", c); !a.Granted || err != nil {
			t.Errorf("acquire: %+v, %v", a, err)
		}
	}
}

// TestLockedSessionsLeaveRoomForHeartbeats: the heartbeats of many sessions wait for their rows, again and again, and those of
// another one need not wait for them.
func TestLockedSessionsLeaveRoomForHeartbeats(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	session := p.open(lock.MaxTTL)
	locked := p.begin("SELECT 1")
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	const stuck = 16
	refusals := make(chan error, 10_000)
	for range stuck {
		s := p.open(lock.MaxTTL)
		locked.exec(lockSession, s.ID.Reveal())
		go func() {
			for ctx.Err() == nil {
				_, err := p.Heartbeat(ctx, s.ID)
				refusals <- err
			}
		}()
	}
	for passed := 0; len(refusals) < stuck; {
		if _, err := p.Heartbeat(t.Context(), session.ID); err == nil {
			passed++
		}
		if n := len(refusals); passed < n/2 {
			t.Fatalf("%d heartbeats passed while %d of locked sessions were refused", passed, n)
		}
	}
	refused(t, "a heartbeat of a locked session", <-refusals)
}

// TestLockedDeadSessionDelaysItsKeysOnly: a session has expired, and nobody can end it since somebody has its row locked.
func TestLockedDeadSessionDelaysItsKeysOnly(t *testing.T) {
	t.Parallel()
	p := idleAt(t, narrow(t, 2)) // nobody else ends what has expired
	dead, session := p.open(lock.MaxTTL), p.open(lock.MaxTTL)
	const keys = 6
	for i := range keys {
		p.grab(fmt.Sprintf("dead/%d", i), dead)
	}
	p.expire(dead)
	locked := p.lockSession(dead)
	var wants []<-chan outcome[port.Attempt]
	for i := range keys {
		wants = append(wants, aside(func() (port.Attempt, error) {
			return p.TryInsert(unhurried(t), request(key(t, fmt.Sprintf("dead/%d", i)), session.ID))
		}))
	}
	p.waits(t, 1)
	for i := range 20 {
		p.use(t, fmt.Sprintf("other/%d", i), session)
	}
	locked.commit()
	for _, c := range wants {
		if a, err := answered(t, "the dead session is free", c); !a.Granted || err != nil {
			t.Errorf("acquire: %+v, %v", a, err)
		}
	}
}

// TestHeartbeatPassesAWaitingAcquire: an acquire that waits for the row of a key does not have its session's row.
func TestHeartbeatPassesAWaitingAcquire(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	session := p.open(lock.MaxTTL)
	p.tombstone("waits")
	for range 7 { // also with a plan for all parameters
		locked := p.lockKey("waits")
		c := aside(func() (port.Attempt, error) { return p.TryInsert(unhurried(t), request(key(t, "waits"), session.ID)) })
		p.waits(t, 1)
		for range 3 {
			if _, err := p.Heartbeat(t.Context(), session.ID); err != nil {
				t.Errorf("heartbeat: %v", err)
			}
		}
		if len(c) > 0 {
			t.Error("the acquire did not wait: this test shows nothing")
		}
		locked.commit()
		a, err := answered(t, "the row is free", c)
		if !a.Granted || err != nil {
			t.Fatalf("acquire: %+v, %v", a, err)
		}
		p.release(a.Grant)
	}
}

// TestNobodyIsDeadlocked: somebody locks first the session that asks, and then the key. Who holds a key's row and waits for a
// session's would be in its way for ever.
func TestNobodyIsDeadlocked(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	session, holder := p.open(lock.MaxTTL), p.open(lock.MaxTTL)
	for round := range 7 {
		name := fmt.Sprintf("deadlock/%d", round)
		p.tombstone(name)
		p.use(t, name, session)
		g := p.grab(name+"/given", holder)
		locked := p.lockSession(session)
		acquire := aside(func() (port.Attempt, error) { return p.TryInsert(unhurried(t), request(key(t, name), session.ID)) })
		handoff := aside(func() (lock.Grant, error) {
			return p.Handoff(unhurried(t), port.GrantRef{Key: g.Key, Session: g.Session, Token: g.Token}, request(g.Key, session.ID))
		})
		p.waits(t, 1) // for the session, one at a time
		locked.exec(lockEntry, name)
		locked.exec(lockEntry, name+"/given")
		locked.commit()
		if a, err := answered(t, "acquire", acquire); err != nil || !a.Granted {
			t.Errorf("acquire: %+v, %v", a, err)
		}
		if g, err := answered(t, "handoff", handoff); err != nil || !g.Session.Equal(session.ID) {
			t.Errorf("handoff: %+v, %v", g, err)
		}
	}
}

// TestGrantsLetAHeartbeatIn: the database would let every further grant of a session share its row, while a heartbeat waits for
// the row to be shared no more.
func TestGrantsLetAHeartbeatIn(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	session := p.open(lock.MaxTTL)
	p.tombstone("later")
	shared := p.begin("SELECT FROM fencelock.lock_session WHERE secret = $1::uuid FOR SHARE", session.ID.Reveal())
	var beat <-chan outcome[port.Vitals]
	for waits := false; !waits; {
		beat = aside(func() (port.Vitals, error) { return p.Heartbeat(t.Context(), session.ID) })
		waits = p.waitsUnless(t, func() bool { return len(beat) > 0 })
	}
	if _, err := p.TryInsert(t.Context(), request(key(t, "later"), session.ID)); err != nil {
		t.Error(err)
	}
	if len(beat) == 0 {
		t.Error("a grant went ahead of a heartbeat that waits")
	}
	shared.commit()
	_, _ = answered(t, "heartbeat", beat)
	if _, err := p.Heartbeat(t.Context(), session.ID); err != nil {
		t.Errorf("heartbeat: %v", err)
	}
}

// backends lists the database's processes that serve the Store.
func (p *place) backends() []int32 {
	return one[[]int32](p, `SELECT coalesce(array_agg(pid), '{}') FROM pg_stat_activity
 WHERE datname = current_database() AND application_name = 'fencelock'`)
}

// keeps expects that the backends still serve the Store after a call was cancelled.
func (p *place) keeps(t *testing.T, what string, before []int32) {
	t.Helper()
	p.waits(t, 0)
	after := p.backends()
	for _, pid := range before {
		if !slices.Contains(after, pid) {
			t.Errorf("%s: the connection of backend %d is gone", what, pid)
		}
	}
}

// TestCancelledCallCostsNoConnection cancels each call while it waits in the database. It has no effect, also later, and
// its connection serves the next one.
func TestCancelledCallCostsNoConnection(t *testing.T) {
	t.Parallel()
	p := newNarrow(t, 2)
	session, other := p.open(lock.MaxTTL), p.open(lock.MaxTTL)
	req := request(key(t, "cancelled"), session.ID)
	req.Lease = time.Minute
	g := p.grabWith(req)
	lockedKey, lockedSession := p.lockKey("cancelled"), p.lockSession(session)
	for what, call := range map[string]func(ctx context.Context) error{
		"acquire": func(ctx context.Context) error { _, err := p.TryInsert(ctx, request(g.Key, other.ID)); return err },
		"release": func(ctx context.Context) error { _, err := p.DeleteIfOwner(ctx, g.Key, g.Session, g.Token); return err },
		"abandon": func(ctx context.Context) error { _, err := p.Abandon(ctx, g.Key, g.Session, g.RequestID); return err },
		"extend": func(ctx context.Context) error {
			_, err := p.Extend(ctx, g.Key, g.Session, g.Token, lock.MaxTTL)
			return err
		},
		"handoff": func(ctx context.Context) error {
			_, err := p.Handoff(ctx, port.GrantRef{Key: g.Key, Session: g.Session, Token: g.Token}, request(g.Key, other.ID))
			return err
		},
		"revoke": func(ctx context.Context) error {
			_, err := p.Revoke(ctx, port.RevokeRequest{Key: g.Key, Operator: "op", Reason: "because"})
			return err
		},
		"close": func(ctx context.Context) error { _, err := p.CloseSession(ctx, session.ID); return err },
		"beat":  func(ctx context.Context) error { _, err := p.Heartbeat(ctx, session.ID); return err },
	} {
		ctx, cancel := context.WithCancel(unhurried(t))
		before := p.backends()
		c := aside(func() (struct{}, error) { return struct{}{}, call(ctx) })
		p.waitsUnless(t, func() bool { return len(c) > 0 }) // a heartbeat gives up by itself
		cancel()
		_, err := answered(t, what, c)
		refused(t, what, err)
		p.keeps(t, what, before)
	}
	lockedKey.commit()
	lockedSession.commit()
	locks, err := p.LocksOf(t.Context(), session.ID)
	if err != nil || len(locks) != 1 || locks[0].Token != g.Token || locks[0].LeaseRemaining > time.Minute {
		t.Errorf("locks: %+v, %v", locks, err)
	}
	p.release(g)
}

// TestCancelledAcquireSaysWhatBecameOfIt cancels acquires at any moment.
func TestCancelledAcquireSaysWhatBecameOfIt(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	granted, refused, open := 0, 0, 0
	for round := range 60 {
		session := p.open(lock.MaxTTL)
		req := request(key(t, "any/moment"), session.ID)
		ctx, cancel := context.WithTimeout(t.Context(), time.Duration(round)*200*time.Microsecond)
		a, err := p.TryInsert(ctx, req)
		cancel()
		locks, failure := p.LocksOf(t.Context(), session.ID)
		if failure != nil {
			t.Fatal(failure)
		}
		switch {
		case err == nil:
			granted++
			if !a.Granted || len(locks) != 1 {
				t.Errorf("granted %v, and the session has %d locks", a.Granted, len(locks))
			}
		case !lock.IsRetryable(err):
			t.Errorf("acquire: %v", err)
		case lock.IsAmbiguous(err):
			open++
		default:
			refused++
			if len(locks) != 0 {
				t.Errorf("refused (%v), and the session has the key", err)
			}
		}
		if _, err := p.Abandon(t.Context(), req.Key, req.Session, req.RequestID); err != nil {
			t.Fatal(err)
		}
		if locks, err := p.LocksOf(t.Context(), session.ID); err != nil || len(locks) != 0 {
			t.Errorf("after the withdrawal the session has %d locks, %v", len(locks), err)
		}
	}
	t.Logf("%d granted, %d refused, %d open", granted, refused, open)
}

type deaf struct{}

// Observe implements port.Observer.
func (deaf) Observe(context.Context, port.Event) {}

// TestManyWaitersLeaveRoom: fifty acquires wait for one key, and there are four connections.
func TestManyWaitersLeaveRoom(t *testing.T) {
	t.Parallel()
	p := newNarrow(t, 4)
	server := service.New(p.Backend(), service.Config{}, clock.Boot{}, deaf{})
	server.Start()
	t.Cleanup(server.Close)
	holder := p.open(lock.MaxTTL)
	g := p.grab("popular", holder)
	const waiters = 50
	granted := make(chan lock.Grant, waiters)
	for range waiters {
		session := p.open(lock.MaxTTL)
		go func() {
			result, err := server.Acquire(t.Context(), service.AcquireRequest{GrantRequest: request(g.Key, session.ID), Wait: time.Minute})
			if err != nil || !result.Granted {
				t.Errorf("acquire: %+v, %v", result, err)
			}
			granted <- result.Grant
		}()
	}
	eventually(t, "all wait", func() bool { return server.Status().Waiters == waiters })
	for i := range 20 {
		p.use(t, fmt.Sprintf("other/%d", i), holder)
	}
	if len(granted) > 0 {
		t.Fatalf("a waiter has the key that is held: %+v", <-granted)
	}
	last := g
	for range waiters {
		if ok, err := server.Release(t.Context(), last.Key, last.Session, last.Token); !ok || err != nil {
			t.Fatalf("release: %v, %v", ok, err)
		}
		if len(granted) > 1 {
			t.Fatal("two waiters have the key")
		}
		select {
		case next := <-granted:
			if next.Token <= last.Token {
				t.Fatalf("token %d after %d", next.Token, last.Token)
			}
			last = next
		case <-time.After(patience):
			t.Fatal("nobody was granted the key that was released")
		}
	}
}
