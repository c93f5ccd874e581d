package postgres_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/fencelock/fencelock/adapters/postgres"
	"github.com/fencelock/fencelock/core/clock"
	"github.com/fencelock/fencelock/core/lock"
	"github.com/fencelock/fencelock/core/port"
	"github.com/fencelock/fencelock/tools/testenv"
)

// reap tidies by hand.
func (p *place) reap() int {
	p.t.Helper()
	n, err := p.ReapExpired(p.t.Context())
	if err != nil {
		p.t.Fatalf("reap: %v", err)
	}
	return n
}

// numberOf is the number of a session.
func (p *place) numberOf(s lock.Session) int64 {
	p.t.Helper()
	return one[int64](p, "SELECT id FROM fencelock.lock_session WHERE secret = $1::uuid", s.ID.Reveal())
}

// TestTidyingByManyEndsEachOnce: what three Stores find at once, with more than a batch of everything, is ended
// and told once, and nothing that lives is touched.
func TestTidyingByManyEndsEachOnce(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	stores := []*postgres.Store{p.Store, p.another(), p.another()}
	living := p.open(lock.MaxTTL)
	bound, leased := p.grab("living", living), request(key(t, "living/leased"), living.ID)
	leased.Lease = lock.MaxTTL
	capped := p.grabWith(leased)
	const n = postgres.TidyBatch + 100
	heard := p.overhear(t)
	// One transaction, so that nobody finds a part of it.
	p.exec(`
WITH dead AS (
  INSERT INTO fencelock.lock_session (secret, owner, ttl, created_at, renewed_at, expires_at)
  SELECT gen_random_uuid(), 'dead', interval '1 minute', clock_timestamp() - interval '3 minutes',
         clock_timestamp() - interval '3 minutes', clock_timestamp() - interval '2 minutes'
    FROM generate_series(1, $1::int)
  RETURNING id
),
orphans AS (
  INSERT INTO fencelock.lock_entry (namespace, key, token, session, request_id, granted_at)
  SELECT 'default', 'orphan/' || d.id, nextval('fencelock.fencing_token_seq'), d.id, 'r', clock_timestamp() FROM dead d
)
INSERT INTO fencelock.lock_entry (namespace, key, token, session, request_id, granted_at, lease, leased_at, lease_until)
SELECT 'default', 'lapsed/' || i, nextval('fencelock.fencing_token_seq'), $2, 'r', clock_timestamp(),
       interval '1 minute', clock_timestamp() - interval '3 minutes', clock_timestamp() - interval '2 minutes'
  FROM generate_series(1, $1::int) i`, n, p.numberOf(living))
	var group sync.WaitGroup
	for _, store := range stores {
		group.Go(func() {
			if _, err := store.ReapExpired(t.Context()); err != nil {
				t.Errorf("reap: %v", err)
			}
		})
	}
	group.Wait()
	eventually(t, "all is tidied", func() bool { // what one was at is left by another
		p.reap()
		return one[int](p, `SELECT (SELECT count(*) FROM fencelock.lock_session WHERE ended_at IS NULL AND owner = 'dead')
 + (SELECT count(*) FROM fencelock.lock_entry WHERE session IS NOT NULL AND key NOT LIKE 'living%')`) == 0
	})
	told := map[string]int{}
	for _, payload := range heard() {
		told[payload]++
	}
	kinds := map[string]int{}
	for payload, times := range told {
		var notice struct{ Kind string }
		if err := json.Unmarshal([]byte(payload), &notice); err != nil || times != 1 {
			t.Errorf("told %d times: %s", times, payload)
		}
		kinds[notice.Kind]++
	}
	if len(kinds) != 2 || kinds["session_over"] != n || kinds["lapsed"] != n {
		t.Errorf("told were %v, want %d ends of sessions and as many lapses", kinds, n)
	}
	list, err := p.LocksOf(t.Context(), living.ID)
	if err != nil || len(list) != 2 || list[0].Token != bound.Token || list[1].Token != capped.Token {
		t.Errorf("the living session holds %+v, %v", list, err)
	}
}

// idlePlace is a place whose Store does nothing on its own.
func idlePlace(tb testing.TB) *place {
	tb.Helper()
	return idleAt(tb, testenv.Postgres(tb).Database(tb))
}

// idleAt is an idle place in the database of the URL.
func idleAt(tb testing.TB, url string) *place {
	tb.Helper()
	return &place{Store: dialIdle(tb, url), t: tb, url: url, raw: raw(tb, url), told: make(chan postgres.Incident, 1)}
}

// dialIdle opens a Store that does nothing on its own.
func dialIdle(tb testing.TB, url string) *postgres.Store {
	tb.Helper()
	ctx, cancel := context.WithTimeout(tb.Context(), patience)
	defer cancel()
	store, err := postgres.DialIdle(ctx, postgres.Access{URL: url}, config())
	if err != nil {
		tb.Fatalf("dial: %v", err)
	}
	tb.Cleanup(func() { _ = store.Close() })
	return store
}

// grabLeased acquires a key with a lease.
func (p *place) grabLeased(name string, session lock.Session) lock.Grant {
	p.t.Helper()
	req := request(key(p.t, name), session.ID)
	req.Lease = lock.MaxTTL
	return p.grabWith(req)
}

// TestReapCountsWhatItFindsOver counts sessions and grants, each once.
func TestReapCountsWhatItFindsOver(t *testing.T) {
	t.Parallel()
	p := idlePlace(t)
	if n := p.reap(); n != 0 {
		t.Errorf("%d over in an empty store", n)
	}
	living, dying, killed, deleted := p.open(lock.MaxTTL), p.open(lock.MaxTTL), p.open(lock.MaxTTL), p.open(lock.MaxTTL)
	for i, s := range []lock.Session{living, dying, killed, deleted} {
		p.grab(fmt.Sprint("one/", i), s)
		p.grabLeased(fmt.Sprint("two/", i), s)
	}
	p.release(p.grab("free", living))
	if n := p.reap(); n != 0 {
		t.Errorf("%d over while all live", n)
	}
	p.lapse("two/0")                                                                          // 1
	p.expire(dying)                                                                           // 3
	p.kill(killed.ID)                                                                         // 2
	p.exec("DELETE FROM fencelock.lock_session WHERE secret = $1::uuid", deleted.ID.Reveal()) // 2
	if n := p.reap(); n != 8 {
		t.Errorf("%d found over, want 2 grants of each of three sessions, one of these, and a lapsed one", n)
	}
	if n := p.reap(); n != 0 {
		t.Errorf("%d found over a second time", n)
	}
	if _, err := p.RaiseFloor(t.Context(), port.FloorRequest{Operator: "op", Reason: "a reason"}); err != nil {
		t.Fatal(err)
	}
	if n := p.reap(); n != 1 {
		t.Errorf("%d found over after the floor was raised, want 1", n)
	}
}

// TestTidyingLeavesWhatOthersAreAt: a row that is locked is for who has it; the others are done, and it is next time.
func TestTidyingLeavesWhatOthersAreAt(t *testing.T) {
	t.Parallel()
	p := idlePlace(t)
	sessions := []lock.Session{p.open(lock.MaxTTL), p.open(lock.MaxTTL)}
	holder := p.open(lock.MaxTTL)
	p.grabLeased("lapsed/0", holder)
	p.grabLeased("lapsed/1", holder)
	for i, s := range sessions {
		p.expire(s)
		p.lapse(fmt.Sprint("lapsed/", i))
	}
	session, entry := p.lockSession(sessions[0]), p.lockKey("lapsed/0")
	over := func(i int) bool {
		return one[bool](p, "SELECT ended_at IS NOT NULL FROM fencelock.lock_session WHERE secret = $1::uuid", sessions[i].ID.Reveal()) &&
			one[bool](p, "SELECT session IS NULL FROM fencelock.lock_entry WHERE key = $1", fmt.Sprint("lapsed/", i))
	}
	if n := p.reap(); n != 2 || !over(1) || over(0) {
		t.Errorf("%d are ended, want those that nobody has locked", n)
	}
	session.commit()
	entry.commit()
	if n := p.reap(); n != 2 || !over(0) {
		t.Errorf("%d are ended next, want the others", n)
	}
}

// TestAllLocksOfASessionEndWithIt also where they are more than a few batches, between those of others.
func TestAllLocksOfASessionEndWithIt(t *testing.T) {
	t.Parallel()
	p := idlePlace(t)
	const many = 3*postgres.TidyBatch + 1
	sessions := []lock.Session{p.open(lock.MaxTTL), p.open(lock.MaxTTL), p.open(lock.MaxTTL)}
	for i, n := range []int{1, many, 1} {
		p.exec(`INSERT INTO fencelock.lock_entry (namespace, key, token, session, request_id, granted_at)
SELECT 'default', $1::text || '/' || i, nextval('fencelock.fencing_token_seq'), $2, 'r', clock_timestamp() FROM generate_series(1, $3::int) i`,
			fmt.Sprint(i), p.numberOf(sessions[i]), n)
		p.kill(sessions[i].ID)
	}
	if n := p.reap(); n != many+2 {
		t.Errorf("%d found over, want %d", n, many+2)
	}
	if n := one[int](p, "SELECT count(*) FROM fencelock.lock_entry WHERE session IS NOT NULL"); n != 0 {
		t.Errorf("%d are held", n)
	}
}

// between carries a statement out that changes rows of the table, one after another. It holds it at the one that fulfils the
// condition, and does something meanwhile.
func (p *place) between(t *testing.T, table, condition, sql string, args []any, meanwhile func()) {
	t.Helper()
	conn, err := p.raw.Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Release()
	// With few rows the database would take them all before it changes the first.
	for _, plan := range []string{"enable_hashjoin", "enable_mergejoin", "enable_seqscan"} {
		if _, err := conn.Exec(t.Context(), "SET "+plan+" = off"); err != nil {
			t.Fatal(err)
		}
	}
	f := p.begin("SELECT pg_advisory_xact_lock(4712)")
	p.exec(`CREATE FUNCTION public.pause() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    PERFORM pg_advisory_xact_lock(4712);
    RETURN NEW;
END $$`)
	p.exec("CREATE TRIGGER pause BEFORE UPDATE ON " + table + " FOR EACH ROW WHEN (" + condition + ") EXECUTE FUNCTION public.pause()")
	done := aside(func() (pgconn.CommandTag, error) { return conn.Exec(t.Context(), sql, args...) })
	p.waits(t, 1)
	meanwhile()
	f.commit()
	if _, err := answered(t, "the statement ends", done); err != nil {
		t.Fatalf("statement: %v", err)
	}
	p.exec("DROP FUNCTION public.pause() CASCADE")
}

// TestHeartbeatBeforeTheBurialWins: the statement has begun, and has seen the session expired; before it comes to its row, a
// heartbeat does. The naive one decides by what it has seen.
func TestHeartbeatBeforeTheBurialWins(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		sql    string
		buried bool
	}{
		"the real one": {postgres.BuryAll, false},
		"naive": {`
WITH expired AS MATERIALIZED (
  SELECT s.id FROM fencelock.lock_session s
   WHERE s.ended_at IS NULL AND ` + postgres.Over("s.renewed_at", "s.expires_at") + ` LIMIT 500
)
UPDATE fencelock.lock_session s SET ended_at = clock_timestamp() FROM expired x WHERE s.id = x.id`, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := idlePlace(t)
			first, second := p.open(lock.MaxTTL), p.open(lock.MaxTTL)
			p.expire(first)
			p.expire(second)
			p.between(t, "fencelock.lock_session", fmt.Sprintf("NEW.id = %d AND NEW.ended_at IS NOT NULL", p.numberOf(first)),
				c.sql, postgres.TidyArgs(p.Store), func() {
					p.exec(`UPDATE fencelock.lock_session SET renewed_at = clock_timestamp(), expires_at = clock_timestamp() + ttl
 WHERE secret = $1::uuid`, second.ID.Reveal())
				})
			_, err := p.Heartbeat(t.Context(), second.ID)
			if buried := err != nil; buried != c.buried {
				t.Errorf("buried: %v (%v), want %v", buried, err, c.buried)
			}
			if _, err := p.Heartbeat(t.Context(), first.ID); lock.CodeOf(err) != lock.CodeSessionDead {
				t.Errorf("heartbeat of the other one: %v, want dead", err)
			}
		})
	}
}

// TestGrantToANewSessionIsNoStray: the session of a grant was deleted; the statement has begun, and before it comes to the row, the
// key is granted to a session that is younger than the statement. The naive one finds no session for that either.
func TestGrantToANewSessionIsNoStray(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		sql   string
		ended bool
	}{
		"the real one": {postgres.EndStrays, false},
		"naive": {`
WITH entry AS MATERIALIZED (
  SELECT e.namespace, e.key FROM fencelock.lock_entry e
   WHERE e.session IS NOT NULL AND NOT EXISTS (SELECT FROM fencelock.lock_session s WHERE s.id = e.session)
   LIMIT 500
     FOR UPDATE OF e SKIP LOCKED
)
UPDATE fencelock.lock_entry e SET session = NULL FROM entry x WHERE e.namespace = x.namespace AND e.key = x.key`, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := idlePlace(t)
			deleted := p.open(lock.MaxTTL)
			p.grab("a", deleted)
			p.grab("b", deleted)
			p.exec("DELETE FROM fencelock.lock_session WHERE secret = $1::uuid", deleted.ID.Reveal())
			var g lock.Grant
			p.between(t, "fencelock.lock_entry", "NEW.key = 'a' AND NEW.session IS NULL",
				c.sql, nil, func() {
					g = p.grab("b", p.open(lock.MaxTTL))
				})
			info, err := p.Read(t.Context(), g.Key)
			if err != nil || info.Held == c.ended {
				t.Errorf("the new grant: %+v, %v; ended: want %v", info, err, c.ended)
			}
		})
	}
}

// TestExtensionBeforeTheEndOfALeaseWins is as that of the heartbeat.
func TestExtensionBeforeTheEndOfALeaseWins(t *testing.T) {
	t.Parallel()
	p := idlePlace(t)
	holder := p.open(lock.MaxTTL)
	p.grabLeased("a", holder)
	g := p.grabLeased("b", holder)
	p.lapse("a")
	p.lapse("b")
	p.between(t, "fencelock.lock_entry", "NEW.key = 'a' AND NEW.session IS NULL",
		postgres.EndLeases, postgres.TidyArgs(p.Store), func() {
			p.exec("UPDATE fencelock.lock_entry SET leased_at = clock_timestamp(), lease_until = clock_timestamp() + lease WHERE key = 'b'")
		})
	if info, err := p.Read(t.Context(), g.Key); err != nil || !info.Held || info.Grant.Token != g.Token {
		t.Errorf("the lease that was extended: %+v, %v", info, err)
	}
}

// TestTokensRiseThoughRowsAreDeleted: workers take turns at a key, and whenever it is free its row may be deleted. The naive token
// is one more than the last of the row.
func TestTokensRiseThoughRowsAreDeleted(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	p.exec(`CREATE FUNCTION public.grow_old() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    NEW.idle_since = clock_timestamp() - interval '2 hours';
    RETURN NEW;
END $$`)
	p.exec(`CREATE TRIGGER grow_old BEFORE INSERT OR UPDATE ON fencelock.lock_entry
  FOR EACH ROW WHEN (NEW.session IS NULL) EXECUTE FUNCTION public.grow_old()`)
	stores := []*postgres.Store{p.Store, p.another()}
	k := key(t, "deleted")
	const workers, grants, deletions = 4, 100, 10
	var last, went, deleted atomic.Int64
	enough := func() bool { return t.Failed() || went.Load() >= grants && deleted.Load() >= deletions }
	var group sync.WaitGroup
	defer group.Wait()
	for i := range workers {
		store, session := stores[i%2], p.open(lock.MaxTTL)
		group.Go(func() {
			for !enough() {
				a, err := store.TryInsert(t.Context(), request(k, session.ID))
				if lock.IsRetryable(err) || err == nil && !a.Granted {
					continue // the row may be deleted each time that it was made
				}
				if err != nil {
					t.Errorf("acquire: %v", err)
					return
				}
				// Nobody else is here while the key is held.
				if before := last.Swap(int64(a.Grant.Token)); before >= int64(a.Grant.Token) {
					t.Errorf("token %d after %d", a.Grant.Token, before)
				}
				went.Add(1)
				if ok, err := store.DeleteIfOwner(t.Context(), k, session.ID, a.Grant.Token); !ok || err != nil {
					t.Errorf("release: %v, %v", ok, err)
					return
				}
			}
		})
	}
	eventually(t, "rows have been deleted between grants", func() bool {
		tag, err := p.raw.Exec(t.Context(), postgres.DropEntries)
		if err != nil {
			t.Errorf("drop: %v", err)
		}
		deleted.Add(tag.RowsAffected())
		return enough()
	})
}

// TestWhatNobodyCanMissIsDeleted and nothing else.
func TestWhatNobodyCanMissIsDeleted(t *testing.T) {
	t.Parallel()
	p := idlePlace(t)
	living, dead, late := p.open(lock.MaxTTL), p.open(lock.MaxTTL), p.open(lock.MaxTTL)
	p.grab("held", living)
	p.grab("dead", dead)
	p.release(p.grab("idle", living))
	p.release(p.grab("fresh", living))
	g := p.grab("condemned", living)
	if _, err := p.Revoke(t.Context(), port.RevokeRequest{Key: g.Key, Operator: "op", Reason: "a reason"}); err != nil {
		t.Fatal(err)
	}
	p.kill(dead.ID)
	p.kill(late.ID)
	p.reap()
	count := func(table string) int { t.Helper(); return one[int](p, "SELECT count(*) FROM fencelock."+table) }
	if n, m := count("lock_session"), count("lock_entry"); n != 3 || m != 5 {
		t.Errorf("%d sessions and %d rows of keys are left at once, want all 3 and 5", n, m)
	}
	p.exec("UPDATE fencelock.lock_session SET ended_at = ended_at - interval '59 seconds'")
	p.exec("UPDATE fencelock.lock_entry SET idle_since = idle_since - interval '59 minutes'")
	p.reap()
	if n, m := count("lock_session"), count("lock_entry"); n != 3 || m != 5 {
		t.Errorf("%d sessions and %d rows of keys are left after a while, want all 3 and 5", n, m)
	}
	entry := p.lockKey("dead")
	entry.exec("UPDATE fencelock.lock_entry SET session = $1, request_id = 'r', granted_at = clock_timestamp() WHERE key = 'dead'", p.numberOf(dead))
	entry.commit()
	entry = p.lockKey("dead") // which keeps the session
	p.exec("UPDATE fencelock.lock_session SET ended_at = ended_at - interval '2 seconds'")
	p.exec("UPDATE fencelock.lock_entry SET idle_since = idle_since - interval '2 minutes' WHERE key NOT IN ('fresh', 'dead')")
	p.reap()
	left := one[string](p, "SELECT string_agg(key, ' ' ORDER BY key) FROM fencelock.lock_entry")
	if n := count("lock_session"); n != 2 || left != "condemned dead fresh held" {
		t.Errorf("%d sessions are left and the rows of %s", n, left)
	}
	entry.commit()
	p.reap()
	if n := count("lock_session"); n != 1 {
		t.Errorf("%d sessions are left, want the one that lives", n)
	}
	for _, s := range []lock.Session{dead, late} {
		_, err := p.Heartbeat(t.Context(), s.ID)
		expect(t, "heartbeat of a session that was deleted", err, lock.ErrSessionDead)
	}
	if info, err := p.Read(t.Context(), g.Key); err != nil || info.Floor <= g.Token {
		t.Errorf("the condemned key: %+v, %v, want its floor", info, err)
	}
	if next := p.grab("idle", living); next.Token <= g.Token {
		t.Errorf("token %d of a key whose row was deleted, want one above %d", next.Token, g.Token)
	}
}

// leapClock is a clock that leaps.
type leapClock struct {
	clock.Boot

	ahead atomic.Int64
}

func (c *leapClock) Elapsed() time.Duration { return c.Boot.Elapsed() + time.Duration(c.ahead.Load()) }

// TestStepOfTheDatabasesClockIsReported: ours leaps here, which looks the same.
func TestStepOfTheDatabasesClockIsReported(t *testing.T) {
	t.Parallel()
	leap := &leapClock{}
	cfg := config()
	cfg.Clock = leap
	p := placeAt(t, postgres.Access{URL: testenv.Postgres(t).Database(t)}, cfg)
	leap.ahead.Store(int64(time.Hour))
	if i := p.hears(postgres.ClockStepped); i.Err == nil || !strings.Contains(i.Err.Error(), "set by -") {
		t.Errorf("reported: %v", i.Err)
	}
}

// countingClock counts how often it is looked at.
type countingClock struct {
	clock.Boot

	looks atomic.Int64
}

func (c *countingClock) Elapsed() time.Duration { c.looks.Add(1); return c.Boot.Elapsed() }

// TestTidyingThatFailsIsReportedOnce for as long as it fails.
func TestTidyingThatFailsIsReportedOnce(t *testing.T) {
	t.Parallel()
	url := testenv.Postgres(t).Database(t)
	proxy := testenv.NewProxy(t, address(t, url))
	counting, cfg := &countingClock{}, config()
	cfg.Clock = counting
	p := placeAt(t, postgres.Access{URL: through(t, url, proxy), ListenURL: url}, cfg)
	direct := raw(t, url)
	for range 2 {
		proxy.Cut()
		if i := p.hears(postgres.TidyFailed); i.Err == nil {
			t.Error("the incident does not say why")
		}
		const rounds = 3 // each looks at the clock once
		from := counting.looks.Load()
		eventually(t, "it fails again", func() bool { return counting.looks.Load() > from+rounds })
		for len(p.told) > 0 {
			if i := <-p.told; i.Kind == postgres.TidyFailed {
				t.Errorf("reported again: %v", i.Err)
			}
		}
		proxy.Heal()
		session := p.open(2 * time.Second)
		eventually(t, "it tidies again", func() bool {
			return rows(t, direct, "SELECT FROM fencelock.lock_session WHERE secret = $1::uuid AND ended_at IS NOT NULL", session.ID.Reveal()) == 1
		})
	}
}

// BenchmarkTidyRound is a round over a hundred thousand sessions with a lock each, all alive, every tenth lock with a lease.
func BenchmarkTidyRound(b *testing.B) {
	p := idlePlace(b)
	p.exec(`
WITH alive AS (
  INSERT INTO fencelock.lock_session (secret, owner, ttl, created_at, renewed_at, expires_at)
  SELECT gen_random_uuid(), 'alive', interval '1 hour', clock_timestamp(), clock_timestamp(), clock_timestamp() + interval '1 hour'
    FROM generate_series(1, 100000)
  RETURNING id
)
INSERT INTO fencelock.lock_entry (namespace, key, token, session, request_id, granted_at, lease, leased_at, lease_until)
SELECT 'default', 'key/' || a.id, nextval('fencelock.fencing_token_seq'), a.id, 'r', clock_timestamp(), l.lease, l.at, l.at + l.lease
  FROM alive a LEFT JOIN (SELECT interval '1 hour' AS lease, clock_timestamp() AS at) l ON a.id % 10 = 0`)
	p.exec("VACUUM ANALYZE fencelock.lock_session, fencelock.lock_entry")
	for name, round := range map[string]func(context.Context) (int, error){
		"each second": func(ctx context.Context) (int, error) { return postgres.Reap(ctx, p.Store) }, "each minute": p.ReapExpired,
	} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				if n, err := round(b.Context()); n != 0 || err != nil {
					b.Fatalf("%d over, %v", n, err)
				}
			}
		})
	}
}
