package postgres_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/fencelock/fencelock/adapters/postgres"
	"github.com/fencelock/fencelock/core/clock"
	"github.com/fencelock/fencelock/core/lock"
	"github.com/fencelock/fencelock/core/port"
	"github.com/fencelock/fencelock/tools/testenv"
)

// still is a clock that only a test moves: however busy the machine is, nothing gets old by itself.
type still struct{ now atomic.Int64 }

func (s *still) Elapsed() time.Duration { return time.Duration(s.now.Load()) }

func (s *still) pass(d time.Duration) { s.now.Add(int64(d)) }

// choir is a place whose heartbeats are counted.
type choir struct {
	*place

	clock *still
}

func newChoir(t *testing.T, url string, proxy *testenv.Proxy) *choir {
	t.Helper()
	c := &choir{clock: &still{}}
	c.clock.pass(time.Hour)
	access := postgres.Access{URL: url}
	if proxy != nil {
		access.URL = through(t, url, proxy)
	}
	c.place = placeAt(t, access, postgres.Config{Clock: c.clock})
	c.raw = raw(t, url)
	c.exec("CREATE TABLE renewal (tx bigint NOT NULL)")
	c.exec(`CREATE FUNCTION count_renewal() RETURNS trigger LANGUAGE plpgsql AS
$$ BEGIN INSERT INTO public.renewal VALUES (txid_current()); RETURN NULL; END $$`)
	c.exec(`CREATE TRIGGER count_renewal AFTER UPDATE ON fencelock.lock_session FOR EACH ROW
 WHEN (NEW.renewed_at > OLD.renewed_at) EXECUTE FUNCTION count_renewal()`)
	return c
}

// renewals are how many sessions were renewed, and by how many statements.
func (c *choir) renewals() (sessions, statements int) {
	return one[int](c.place, "SELECT count(*) FROM renewal"), one[int](c.place, "SELECT count(DISTINCT tx) FROM renewal")
}

// hold keeps heartbeats from being sent until it is let go. Nothing else is on the way then.
func (c *choir) hold(t *testing.T) (release func()) {
	t.Helper()
	var conns []*pgxpool.Conn
	for range 2 {
		conn, err := postgres.PoolsOf(c.Store).Beats().Acquire(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		conns = append(conns, conn)
		if _, err := conn.Conn().Prepare(t.Context(), postgres.HeartbeatsPassing, postgres.HeartbeatsPassing); err != nil {
			t.Fatal(err)
		}
	}
	var released atomic.Bool
	release = func() {
		if released.CompareAndSwap(false, true) {
			for _, conn := range conns {
				conn.Release()
			}
		}
	}
	t.Cleanup(release)
	return release
}

func (c *choir) beat(ctx context.Context, id lock.SessionID) <-chan outcome[port.Vitals] {
	return aside(func() (port.Vitals, error) { return c.Heartbeat(ctx, id) })
}

// gathers waits until that many heartbeats wait to be sent.
func (c *choir) gathers(t *testing.T, n int) {
	t.Helper()
	eventually(t, "heartbeats wait to be sent", func() bool { return postgres.WaitingBeats(c.Store) == n })
}

func passes(t *testing.T, what string, beat <-chan outcome[port.Vitals]) {
	t.Helper()
	if v, err := answered(t, what, beat); err != nil || v.TTL <= 0 || v.Remaining <= 0 || v.Remaining > v.TTL {
		t.Errorf("%s: %+v, %v", what, v, err)
	}
}

// TestHeartbeatsHaveNoCeiling: the database is far away, and each connection carries one statement at a time.
func TestHeartbeatsHaveNoCeiling(t *testing.T) {
	t.Parallel()
	url := testenv.Postgres(t).Database(t)
	proxy := testenv.NewProxy(t, url)
	c := newChoir(t, url, proxy)
	const sessions, rounds = 300, 3
	var ids []lock.SessionID
	for range sessions {
		ids = append(ids, c.open(lock.MaxTTL).ID)
	}
	proxy.Delay(20 * time.Millisecond)
	for range rounds {
		var beats []<-chan outcome[port.Vitals]
		for _, id := range ids {
			beats = append(beats, c.beat(t.Context(), id))
		}
		for _, b := range beats {
			passes(t, "one of many heartbeats", b)
		}
	}
	renewed, statements := c.renewals()
	if renewed != sessions*rounds || statements > renewed/10 {
		t.Errorf("%d sessions were renewed by %d statements", renewed, statements)
	}
	// Who sends one after the other gets a statement for each.
	proxy.Delay(0)
	for _, id := range ids[:10] {
		passes(t, "a lone heartbeat", c.beat(t.Context(), id))
	}
	if n, s := c.renewals(); n-renewed != 10 || s-statements != 10 {
		t.Errorf("%d lone heartbeats went in %d statements", n-renewed, s-statements)
	}
}

// TestHeartbeatsAreAnsweredEach: sessions of every kind are in one set, and one of them is asked for twice.
func TestHeartbeatsAreAnsweredEach(t *testing.T) {
	t.Parallel()
	c := newChoir(t, testenv.Postgres(t).Database(t), nil)
	alive, twice, closed, expired := c.open(lock.MaxTTL), c.open(lock.MaxTTL), c.open(lock.MaxTTL), c.open(lock.MaxTTL)
	short := c.open(lock.MinTTL)
	if _, err := c.CloseSession(t.Context(), closed.ID); err != nil {
		t.Fatal(err)
	}
	c.expire(expired)
	release := c.hold(t)
	var live, dead []<-chan outcome[port.Vitals]
	for _, id := range []lock.SessionID{alive.ID, short.ID, twice.ID, twice.ID} {
		live = append(live, c.beat(t.Context(), id))
	}
	for _, id := range []lock.SessionID{closed.ID, expired.ID, lock.NewSessionID()} {
		dead = append(dead, c.beat(t.Context(), id))
	}
	c.gathers(t, 6)
	release()
	for _, b := range live {
		passes(t, "alive", b)
	}
	for _, b := range dead {
		_, err := answered(t, "dead", b)
		expect(t, "dead", err, lock.ErrSessionDead)
	}
	if renewed, statements := c.renewals(); renewed != 3 || statements != 1 {
		t.Errorf("%d sessions were renewed by %d statements", renewed, statements)
	}
	if n := rows(t, c.raw, "SELECT FROM fencelock.lock_session WHERE ended_at IS NOT NULL AND secret = $1::uuid", expired.ID.Reveal()); n != 1 {
		t.Error("the session that has expired is not ended")
	}
}

// TestLockedSessionDelaysNoOtherOfItsSet: somebody has the row of one of them locked.
func TestLockedSessionDelaysNoOtherOfItsSet(t *testing.T) {
	t.Parallel()
	c := newChoir(t, testenv.Postgres(t).Database(t), nil)
	stuck, one, other := c.open(lock.MaxTTL), c.open(lock.MaxTTL), c.open(lock.MaxTTL)
	for {
		c.exec("TRUNCATE renewal")
		locked := c.lockSession(stuck)
		release := c.hold(t)
		first, last := c.beat(t.Context(), one.ID), c.beat(t.Context(), stuck.ID)
		second := c.beat(t.Context(), other.ID)
		c.gathers(t, 3)
		release()
		passes(t, "with a locked one", first)
		passes(t, "with a locked one", second)
		if renewed, statements := c.renewals(); renewed != 2 || statements != 1 {
			t.Errorf("%d sessions beside a locked one were renewed by %d statements", renewed, statements)
		}
		if c.waitsUnless(t, func() bool { return len(last) > 0 }) {
			locked.commit()
			if _, err := answered(t, "unlocked", last); err == nil {
				return
			}
			continue // the machine was too busy: it was told to come again
		}
		_, err := answered(t, "locked", last)
		refused(t, "locked", err)
		locked.commit()
	}
}

// TestHeartbeatThatCannotBeReckonedWith: one session's row makes every statement fail that would renew it.
func TestHeartbeatThatCannotBeReckonedWith(t *testing.T) {
	t.Parallel()
	c := newChoir(t, testenv.Postgres(t).Database(t), nil)
	release := c.hold(t)
	var beats []<-chan outcome[port.Vitals]
	const sessions, odd = 20, 7
	for i := range sessions {
		s := c.open(lock.MaxTTL)
		if i == odd {
			c.exec("UPDATE fencelock.lock_session SET ttl = interval '300000 years' WHERE secret = $1::uuid", s.ID.Reveal())
		}
		beats = append(beats, c.beat(t.Context(), s.ID))
	}
	c.gathers(t, sessions)
	release()
	for i, b := range beats {
		if i != odd {
			passes(t, "with an odd one", b)
			continue
		}
		_, err := answered(t, "the odd one", b)
		refused(t, "the odd one", err)
	}
}

// TestOldHeartbeatIsDropped: it has waited for a connection for too long. Who asks again meanwhile makes it new.
func TestOldHeartbeatIsDropped(t *testing.T) {
	t.Parallel()
	c := newChoir(t, testenv.Postgres(t).Database(t), nil)
	old, again, late := c.open(lock.MaxTTL), c.open(lock.MaxTTL), c.open(lock.MaxTTL)
	release := c.hold(t)
	first, second := c.beat(t.Context(), old.ID), c.beat(t.Context(), again.ID)
	c.gathers(t, 2)
	c.clock.pass(1100 * time.Millisecond)
	third, fourth := c.beat(t.Context(), again.ID), c.beat(t.Context(), late.ID)
	c.gathers(t, 3)
	eventually(t, "two ask for one", func() bool { return postgres.AskersOfBeats(c.Store) == 4 })
	release()
	_, err := answered(t, "old", first)
	refused(t, "an old heartbeat", err)
	for _, b := range []<-chan outcome[port.Vitals]{second, third, fourth} {
		passes(t, "asked for just now", b)
	}
	if n, _ := c.renewals(); n != 2 {
		t.Errorf("%d sessions were renewed, want 2", n)
	}
}

// TestHeartbeatOfWhoLeft: who leaves before it was sent knows that it was not; who leaves after it, while others stay, cannot know.
func TestHeartbeatOfWhoLeft(t *testing.T) {
	t.Parallel()
	c := newChoir(t, testenv.Postgres(t).Database(t), nil)
	left, stays := c.open(lock.MaxTTL), c.open(lock.MaxTTL)
	release := c.hold(t)
	ctx, leave := context.WithCancel(t.Context())
	gone, kept := c.beat(ctx, left.ID), c.beat(t.Context(), stays.ID)
	c.gathers(t, 2)
	leave()
	_, err := answered(t, "left before", gone)
	refused(t, "left before it was sent", err)
	c.gathers(t, 1)
	release()
	passes(t, "stayed", kept)
	if n, _ := c.renewals(); n != 1 {
		t.Errorf("%d sessions were renewed, want 1", n)
	}

	release = c.hold(t)
	locked := c.begin("LOCK TABLE fencelock.lock_session IN ACCESS EXCLUSIVE MODE")
	ctx, leave = context.WithCancel(t.Context())
	other, leaveToo := context.WithCancel(t.Context())
	gone, kept = c.beat(ctx, left.ID), c.beat(other, stays.ID)
	c.gathers(t, 2)
	release()
	eventually(t, "it was sent", func() bool {
		return rows(t, c.raw, activity+" AND wait_event_type = 'Lock'", "%ANY ($5::text[]%") == 1
	})
	leave()
	if _, err = answered(t, "left after", gone); !lock.IsRetryable(err) || !lock.IsAmbiguous(err) {
		t.Errorf("left after it was sent: %v (ambiguous %v)", err, lock.IsAmbiguous(err))
	}
	if len(kept) > 0 {
		t.Error("who stayed was answered")
	}
	leaveToo()
	_, err = answered(t, "the last one left", kept)
	refused(t, "the last one left", err)
	eventually(t, "the statement is cancelled", func() bool { return rows(t, c.raw, activity, "%ANY ($5::text[]%") == 0 })
	locked.commit()
	if n, _ := c.renewals(); n != 1 {
		t.Errorf("%d sessions were renewed, want 1", n)
	}
}

// TestHeartbeatsThatAreCutOff: nobody knows what became of any of a set whose connection broke.
func TestHeartbeatsThatAreCutOff(t *testing.T) {
	t.Parallel()
	url := testenv.Postgres(t).Database(t)
	proxy := testenv.NewProxy(t, url)
	c := newChoir(t, url, proxy)
	release := c.hold(t)
	var beats []<-chan outcome[port.Vitals]
	for range 5 {
		beats = append(beats, c.beat(t.Context(), c.open(lock.MaxTTL).ID))
	}
	c.gathers(t, len(beats))
	proxy.HoldAnswers()
	release()
	eventually(t, "all were renewed", func() bool { n, _ := c.renewals(); return n == len(beats) })
	proxy.Cut()
	proxy.ReleaseAnswers()
	for _, b := range beats {
		if _, err := answered(t, "cut off", b); !lock.IsRetryable(err) || !lock.IsAmbiguous(err) {
			t.Errorf("cut off: %v (ambiguous %v)", err, lock.IsAmbiguous(err))
		}
	}
}

// TestLateHeartbeatRevivesNobody: the database came to it after seconds, in which the session may have been over.
func TestLateHeartbeatRevivesNobody(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	session := p.open(lock.MaxTTL)
	renewed := one[time.Time](p, "SELECT renewed_at FROM fencelock.lock_session")
	locked := p.begin("LOCK TABLE fencelock.lock_session IN ACCESS EXCLUSIVE MODE") // as VACUUM FULL does
	beat := aside(func() (port.Vitals, error) { return p.Heartbeat(t.Context(), session.ID) })
	eventually(t, "it was sent", func() bool {
		return len(beat) > 0 || rows(t, p.raw, activity+" AND wait_event_type = 'Lock' AND clock_timestamp() > xact_start + interval '2.5 s'",
			"%ANY ($5::text[]%") == 1
	})
	locked.commit()
	_, err := answered(t, "late", beat)
	refused(t, "a late heartbeat", err)
	if now := one[time.Time](p, "SELECT renewed_at FROM fencelock.lock_session"); !now.Equal(renewed) {
		t.Errorf("renewed %v after the last time", now.Sub(renewed))
	}
	if _, err := p.Heartbeat(t.Context(), session.ID); err != nil {
		t.Errorf("the next heartbeat: %v", err)
	}
}

// TestClockSetForwardCostsNoHeartbeat: it looks like a late one, and is not.
func TestClockSetForwardCostsNoHeartbeat(t *testing.T) {
	t.Parallel()
	own, cfg := &ahead{}, config()
	cfg.Clock = own
	p := placeAt(t, postgres.Access{URL: testenv.Postgres(t).Database(t)}, cfg)
	session := p.open(lock.MinTTL)
	// To this server that is the same as its own clock going back.
	own.by.Store(int64(-time.Hour))
	if _, err := p.Heartbeat(t.Context(), session.ID); err != nil {
		t.Errorf("heartbeat: %v", err)
	}
	p.hears(postgres.ClockStepped)
}

// BenchmarkHeartbeats has 64 sessions renewed at once, over and over.
func BenchmarkHeartbeats(b *testing.B) {
	p := placeAt(b, postgres.Access{URL: testenv.Postgres(b).Database(b)}, postgres.Config{Clock: clock.Boot{}})
	const callers = 64
	sessions := make(chan lock.SessionID, callers)
	for range callers {
		sessions <- p.open(lock.MaxTTL).ID
	}
	var failed atomic.Int64
	b.SetParallelism(callers / 2)
	b.ResetTimer()
	b.RunParallel(func(pb *testing.PB) {
		id := <-sessions
		defer func() { sessions <- id }()
		for pb.Next() {
			if _, err := p.Heartbeat(b.Context(), id); err != nil {
				failed.Add(1)
				if errors.Is(err, lock.ErrSessionDead) {
					b.Error(err)
				}
			}
		}
	})
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "heartbeats/s")
	b.ReportMetric(float64(failed.Load()), "failed")
}
