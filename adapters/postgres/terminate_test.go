package postgres_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/fencelock/fencelock/adapters/postgres"
	"github.com/fencelock/fencelock/contracts/parity"
	"github.com/fencelock/fencelock/contracts/parity/trial"
	"github.com/fencelock/fencelock/core/lock"
	"github.com/fencelock/fencelock/core/port"
	"github.com/fencelock/fencelock/tools/testenv"
)

// TestParityWhileBackendsAreTerminated runs the suite while somebody ends all connections of the Stores, again and again. A
// case may break off where a call says that it could not be carried out, or that its outcome is unknown: the suite asks once
// where it is not safe to ask twice. It must not find anything that is not so.
func TestParityWhileBackendsAreTerminated(t *testing.T) {
	t.Parallel()
	var executioner executioner
	survivors := newSite(t)
	stores := survivors.fixture(t, straight(t, survivors.url))
	met := stores.bother(t, func() (stop func()) { return executioner.attack(t, survivors, 1) })
	var judged, broken atomic.Int64
	onSites(t, endures, func(t *testing.T, s *site, clause, name string) {
		t.Helper()
		const tries = 3
		for n := range tries {
			o := trial.Run(t.Context(), executioner.harness(s, 1<<n), clause, name, excuse(clause, name))
			for _, complaint := range o.Complaints {
				t.Error(complaint)
			}
			if o.Excused == nil {
				judged.Add(1)
				return
			}
			broken.Add(1)
			t.Logf("broken off: %v", o.Excused)
		}
	})
	errors := met()
	stores.serve(t, survivors)
	t.Logf("%d connections were ended; of the cases %d came to their end, %d times one broke off before; one client met %d errors",
		executioner.ended.Load(), judged.Load(), broken.Load(), errors)
	if executioner.ended.Load() == 0 || errors == 0 || judged.Load() == 0 {
		t.Error("nobody met an ended connection, or nobody came to an end: this test shows nothing")
	}
}

// bother has a client take and release a key during an attack, until met is called, which returns how many of its calls could not be
// carried out, or not to its knowledge.
func (p *pair) bother(t *testing.T, attack func() (stop func())) (met func() int) {
	t.Helper()
	session, err := p.first.OpenSession(t.Context(), port.OpenRequest{Owner: "tester", TTL: lock.MaxTTL})
	if err != nil {
		t.Fatalf("open: %v", err)
	}
	stop := attack()
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	errors := 0
	note := func(what string, err error) {
		switch {
		case ctx.Err() != nil:
		case lock.IsRetryable(err):
			errors++
		case err != nil:
			t.Errorf("%s: %v", what, err)
		}
	}
	var work sync.WaitGroup
	work.Go(func() {
		req := request(key(t, "bothered"), session.ID) // always the same, so that the answer to one of them does for all before
		for tick := time.Tick(10 * time.Millisecond); ctx.Err() == nil; <-tick {
			a, err := p.first.TryInsert(ctx, req)
			if note("acquire", err); err == nil && !a.Granted {
				t.Errorf("acquire: held under token %d by whom nobody knows", a.Holder.Token)
			}
			_, err = p.second.DeleteIfOwner(ctx, req.Key, req.Session, a.Grant.Token)
			note("release", err)
		}
	})
	end := sync.OnceFunc(func() { stop(); cancel(); work.Wait() })
	t.Cleanup(end)
	return func() int { end(); return errors }
}

// excuse returns which errors break a case off: those of a call. An error around one is that of a case which has asked for long, and
// in vain.
func excuse(clause, name string) func(error) bool {
	if clause == "FAIL-01" && strict[name] {
		return nil
	}
	return func(err error) bool {
		direct, ok := err.(*lock.Error) //nolint:errorlint // one that is wrapped is none
		return ok && (direct.Code == lock.CodeContention || direct.Code == lock.CodeNotLeader)
	}
}

// strict are cases of FAIL-01 that complain of retryable errors which are not true, and that need no excuse: they call nothing in a way
// that an ended connection could break.
var strict = map[string]bool{
	"transport failure surfacing as contention and never as lost": true,
	"a lost answer says that its outcome is unknown":              true,
}

// endures reports whether a case can be judged while connections are being ended. Those that cannot have other reasons than the
// store.
func endures(clause, name string) bool { return exempt[clause] == "" && exempt[clause+"/"+name] == "" }

const (
	shortLives = "what it opens or leases lives for two seconds, and a call that has to be sent again takes some of them"
	onceAlone  = "it makes a call once, by itself, and waits for what comes of it also where that has failed"
	countsAll  = "it counts acts, and takes those whose outcome is unknown for done"
	oneListen  = "it is about what one connection that listens brings, or does not bring"
	unsaid     = "a heartbeat is answered also where the store does not say what is held"
	elsewhere  = "it is about names, lists or the core, and an ended connection is one like any other there"
)

var exempt = map[string]string{
	"SESS-01":                           elsewhere,
	"SESS-02":                           shortLives,
	"SESS-03/a malformed id is invalid": elsewhere,
	"SESS-04":                           shortLives,
	"SESS-08/a session outlives the server that opened it": shortLives,
	"LOCK-07/an extended grant outlives its first lease":   shortLives,
	"LOCK-08": shortLives,
	"LOCK-10": elsewhere,
	"LOCK-11": elsewhere,
	"LOCK-13": unsaid,
	"REV-01/one of many revocations at once succeeds, with one record":  countsAll,
	"REV-01/a revocation and a release never both succeed":              countsAll,
	"REV-01/operator and reason are required before any store is asked": elsewhere,
	"REV-03/the feed of every server tells it":                          oneListen,
	"REV-04": elsewhere,
	"WAIT-02/a release between the first attempt and the registration is not missed": onceAlone,
	"WAIT-02/a release between the second attempt and the wait is not missed":        onceAlone,
	"WAIT-02/a lapse and a session's death wake a waiter":                            shortLives,
	"WAIT-02/a lapse and a session's death reach who heeds the port alone":           shortLives,
	"WAIT-03": oneListen,
	"WAIT-04/no waiter of another server starves": onceAlone,
	"FAIL-02/no life without the store":           shortLives,
}

// TestExemptionsNameCases: an exemption of what is not there, any more perhaps, would be for nothing.
func TestExemptionsNameCases(t *testing.T) {
	t.Parallel()
	names := []string{}
	for name := range exempt {
		names = append(names, name)
	}
	for name := range strict {
		names = append(names, "FAIL-01/"+name)
	}
	for _, name := range names {
		clause, name, one := strings.Cut(name, "/")
		if cases := parity.Cases(clause); len(cases) == 0 || one && !slices.Contains(cases, name) {
			t.Errorf("the suite has no %s/%s", clause, name)
		}
	}
}

// executioner ends connections and counts them.
type executioner struct{ ended atomic.Int64 }

// harness binds the suite to Stores whose connections are ended while a case runs. The Stores serve afterwards.
func (e *executioner) harness(s *site, calm int) parity.Harness {
	return parity.Harness{New: func(t parity.T) parity.Fixture {
		proxied := straight(t, s.url)
		p := s.fixture(t, proxied)
		stop := e.attack(t, s, calm)
		t.Cleanup(func() {
			stop()
			for _, proxy := range proxied.proxies {
				proxy.ReleaseAnswers()
				proxy.Heal()
			}
			p.answer(t)
		})
		return p.Fixture
	}}
}

// straight are ways to the database itself.
func straight(t parity.T, url string) ways {
	proxy := testenv.NewProxy(tempT{t}, address(t, url))
	return ways{
		first: postgres.Access{URL: through(t, url, proxy)}, second: postgres.Access{URL: url},
		proxies: []*testenv.Proxy{proxy},
	}
}

// attack ends all connections of the site's Stores at random moments, for the most part 50 to 200 ms apart. It leaves more time
// where it takes long to connect, or nobody would ever get anything done, and now and then for no reason; calm makes
// all pauses longer.
func (e *executioner) attack(t parity.T, s *site, calm int) (stop func()) {
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	var work sync.WaitGroup
	work.Go(func() {
		pause := 50 * time.Millisecond
		for {
			if rand.N(4) == 0 {
				pause *= 5
			}
			select {
			case <-ctx.Done():
				return
			case <-time.After(time.Duration(calm) * (pause + rand.N(3*pause))):
			}
			began := time.Now()
			if err := e.strike(ctx, s.url); err != nil && ctx.Err() == nil {
				t.Errorf("end connections: %s", err)
			}
			pause = max(50*time.Millisecond, 2*time.Since(began))
		}
	})
	return func() { cancel(); work.Wait() }
}

// strike connects as a Store would, and ends all connections of Stores to the database.
func (e *executioner) strike(ctx context.Context, url string) error {
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		return err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	var n int64
	err = conn.QueryRow(ctx, `
SELECT count(*) FROM (
  SELECT pg_terminate_backend(pid) AS done FROM pg_stat_activity WHERE datname = current_database() AND application_name = 'fencelock'
) AS a WHERE done`).Scan(&n)
	e.ended.Add(n)
	return err
}

// soon bounds what must happen, also after the end of a test's context.
func soon(t parity.T) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(t.Context()), patience)
}

// asked calls a Store until it answers.
func asked[V any](t parity.T, what string, call func(ctx context.Context) (V, error)) V {
	t.Helper()
	ctx, cancel := soon(t)
	defer cancel()
	for {
		v, err := call(ctx)
		if err == nil {
			return v
		}
		if !lock.IsRetryable(err) || ctx.Err() != nil {
			t.Fatalf("%s, afterwards: %s", what, err)
		}
	}
}

// answer expects the Stores to grant and to release.
func (p *pair) answer(t parity.T) {
	t.Helper()
	p.use(t, p.second)
	if !p.stopped.Load() {
		p.use(t, p.first)
	}
}

// use takes a key at a Store and releases it.
func (p *pair) use(t parity.T, store *postgres.Store) {
	t.Helper()
	g := take(t, store, "afterwards")
	asked(t, "release", func(ctx context.Context) (bool, error) { return store.DeleteIfOwner(ctx, g.Key, g.Session, g.Token) })
}

// take opens a session for a grant that must be made.
func take(t parity.T, store *postgres.Store, name string) lock.Grant {
	t.Helper()
	a := try(t, store, name)
	if !a.Granted {
		t.Fatalf("acquire %s, afterwards: held by token %d", name, a.Holder.Token)
	}
	return a.Grant
}

// try opens a session for one attempt.
func try(t parity.T, store *postgres.Store, name string) port.Attempt {
	t.Helper()
	session := asked(t, "open", func(ctx context.Context) (lock.Session, error) {
		return store.OpenSession(ctx, port.OpenRequest{Owner: "tester", TTL: time.Minute})
	})
	req := request(key(t, name), session.ID)
	return asked(t, "acquire", func(ctx context.Context) (port.Attempt, error) { return store.TryInsert(ctx, req) })
}

// serve expects the Stores to do everything, and each to hear what the other one does.
func (p *pair) serve(t *testing.T, s *site) {
	t.Helper()
	p.answer(t)
	for i, stores := range [][2]*postgres.Store{{p.first, p.second}, {p.second, p.first}} {
		name := fmt.Sprintf("heard/%d", i)
		(&place{t: t, raw: s.pool}).caughtUp(t, stores[1])
		g := take(t, stores[0], name)
		w := stores[1].Register(g.Key, g.Token)
		defer w.Cancel()
		if a := try(t, stores[1], name); a.Granted {
			t.Fatalf("%s was granted twice", name)
		}
		quiet(t, "nothing", w)
		asked(t, "release", func(ctx context.Context) (bool, error) {
			return stores[0].DeleteIfOwner(ctx, g.Key, g.Session, g.Token)
		})
		fires(t, "a release at the other Store", w)
	}
}

// liar is a store of grants that makes something else of what it cannot tell.
type liar struct {
	port.LockStore

	told *atomic.Int64
	// says is the error instead; nil says held, of an acquire, and false, of a release.
	says error
}

func (l liar) lies(err error) bool {
	if lock.IsRetryable(err) {
		l.told.Add(1)
		return true
	}
	return false
}

// TryInsert implements port.LockStore.
func (l liar) TryInsert(ctx context.Context, req port.GrantRequest) (port.Attempt, error) {
	a, err := l.LockStore.TryInsert(ctx, req)
	if l.lies(err) {
		return port.Attempt{Holder: lock.Holder{Token: 1}}, l.says
	}
	return a, err
}

// Extend implements port.LockStore.
func (l liar) Extend(
	ctx context.Context, key lock.Key, session lock.SessionID, token lock.Token, lease time.Duration,
) (lock.Grant, error) {
	g, err := l.LockStore.Extend(ctx, key, session, token, lease)
	if l.lies(err) {
		return lock.Grant{}, l.says
	}
	return g, err
}

// DeleteIfOwner implements port.LockStore.
func (l liar) DeleteIfOwner(ctx context.Context, key lock.Key, session lock.SessionID, token lock.Token) (bool, error) {
	ok, err := l.LockStore.DeleteIfOwner(ctx, key, session, token)
	if l.lies(err) {
		return false, l.says
	}
	return ok, err
}

// TestLiesAboutEndedConnectionsAreFound is the control of the test above: nothing excuses a Store that takes a call which it could not
// carry out, or whose outcome it does not know, for one that was answered.
func TestLiesAboutEndedConnectionsAreFound(t *testing.T) {
	t.Parallel()
	for what, says := range map[string]error{"lost": lock.ErrLost, "dead": lock.ErrSessionDead, "held, or false": nil} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			var executioner executioner
			s := newSite(t)
			var told atomic.Int64
			honest := executioner.harness(s, 1)
			harness := parity.Harness{New: func(t parity.T) parity.Fixture {
				f := honest.New(t)
				f.First.Locks, f.Second.Locks = liar{f.First.Locks, &told, says}, liar{f.Second.Locks, &told, says}
				return f
			}}
			const clause, name = "LOCK-02", "token strictly increasing across acquire and release cycles"
			var o trial.Outcome
			for told.Load() == 0 { // until an ended connection was met
				o = trial.Run(t.Context(), harness, clause, name, excuse(clause, name))
			}
			if !o.Failed() || o.Excused != nil {
				t.Errorf("%d times a Store said what it could not know, and that passes: %+v", told.Load(), o)
			}
			t.Log(o.Complaints)
		})
	}
}
