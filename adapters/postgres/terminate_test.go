package postgres_test

import (
	"context"
	"fmt"
	"math/rand/v2"
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

// TestParityWhileBackendsAreTerminated runs the whole suite while somebody ends all connections of the Stores, again and again. A case
// may break off where a call says that it could not be carried out, or that its outcome is unknown: the suite asks once where it
// is not safe to ask twice. It must not find anything that is not so, and comes to its end when it is tried again.
func TestParityWhileBackendsAreTerminated(t *testing.T) {
	t.Parallel()
	var executioner executioner
	survivors := newSite(t)
	stores := survivors.fixture(t, straight(t, survivors.url))
	met := stores.bother(t, func() (stop func()) { return executioner.attack(t, survivors, 1) })
	var judged, broken atomic.Int64
	onSites(t, func(t *testing.T, s *site, clause, name string) {
		t.Helper()
		o, before := executioner.judge(t, s, clause, name)
		for _, err := range before {
			t.Logf("broken off: %v", err)
		}
		for _, complaint := range o.Complaints {
			t.Error(complaint)
		}
		if o.Excused != nil {
			t.Errorf("broken off to the last: %v", o.Excused)
		}
		judged.Add(1)
		broken.Add(int64(len(before)))
	})
	errors := met()
	stores.serve(t, survivors)
	t.Logf("%d connections were ended; %d cases came to their end, %d times one broke off before; one client met %d errors",
		executioner.ended.Load(), judged.Load(), broken.Load(), errors)
	if executioner.ended.Load() == 0 || errors == 0 {
		t.Error("nobody met an ended connection: this test shows nothing")
	}
}

// judge runs a case until it has come to its end, under attacks that leave it more and more time. It returns the outcome, and why it broke
// off before.
func (e *executioner) judge(t *testing.T, s *site, clause, name string) (o trial.Outcome, before []error) {
	t.Helper()
	const tries = 10 // the last attacks strike once, and then not for ten seconds
	for n := range tries {
		if o.Excused != nil {
			before = append(before, o.Excused)
		}
		o = trial.Run(t.Context(), e.harness(s, 1<<n, nil), clause, name, excuse(clause, name))
		if o.Failed() || o.Excused == nil {
			break
		}
	}
	return o, before
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
	if strict[clause+"/"+name] {
		return nil
	}
	return func(err error) bool {
		direct, ok := err.(*lock.Error) //nolint:errorlint // one that is wrapped is none
		return ok && (direct.Code == lock.CodeContention || direct.Code == lock.CodeNotLeader)
	}
}

// strict are cases that complain of retryable errors which are not true, and that need no excuse: they call nothing in a way
// that an ended connection could break.
var strict = map[string]bool{
	"FAIL-01/transport failure surfacing as contention and never as lost": true,
	"FAIL-01/a lost answer says that its outcome is unknown":              true,
}

// executioner ends connections and counts them.
type executioner struct{ ended atomic.Int64 }

// harness binds the suite to Stores whose connections are ended while a case runs, and once more after it. The Stores serve afterwards.
func (e *executioner) harness(s *site, calm int, plant func(*parity.Fixture)) parity.Harness {
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
			ctx, cancel := soon(t)
			defer cancel()
			if err := e.strike(ctx, s.url); err != nil {
				t.Errorf("end connections: %s", err)
			}
			p.answer(t)
		})
		if plant != nil {
			plant(&p.Fixture)
		}
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

// attack ends all connections of the site's Stores at random moments, for the most part 20 to 200 ms apart, and begins at once. It
// leaves more time where it takes long to connect, or nobody would ever get anything done, and now and then for no reason; calm
// makes all pauses longer.
func (e *executioner) attack(t parity.T, s *site, calm int) (stop func()) {
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	var work sync.WaitGroup
	work.Go(func() {
		const shortest = 20 * time.Millisecond
		for pause := time.Duration(1); ; {
			select {
			case <-ctx.Done():
				return
			case <-time.After(time.Duration(calm) * (pause + rand.N(3*pause))):
			}
			began := time.Now()
			if err := e.strike(ctx, s.url); err != nil && ctx.Err() == nil {
				t.Errorf("end connections: %s", err)
			}
			if pause = max(shortest, 2*time.Since(began)); rand.N(4) == 0 {
				pause *= 5
			}
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
