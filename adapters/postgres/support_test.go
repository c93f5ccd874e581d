package postgres_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"go.uber.org/goleak"

	"github.com/fencelock/fencelock/adapters/postgres"
	"github.com/fencelock/fencelock/contracts/parity"
	"github.com/fencelock/fencelock/core/clock"
	"github.com/fencelock/fencelock/core/lock"
	"github.com/fencelock/fencelock/core/port"
	"github.com/fencelock/fencelock/tools/testenv"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(testenv.Main(m)) }

// patience bounds every wait for what must happen.
const patience = 30 * time.Second

// tempT gives a parity.T the folder that testenv.T asks for; the shared server needs none.
type tempT struct{ parity.T }

func (tempT) TempDir() string { return "" }

// config is a Store's.
func config() postgres.Config { return postgres.Config{Clock: clock.Boot{}} }

// raw opens connections to a database itself.
func raw(t parity.T, url string) *pgxpool.Pool {
	t.Helper()
	pool, err := pgxpool.New(t.Context(), url)
	if err != nil {
		t.Fatalf("open connections: %v", err)
	}
	t.Cleanup(pool.Close)
	return pool
}

// dial opens a Store that ends with the test.
func dial(t parity.T, access postgres.Access, cfg postgres.Config) *postgres.Store {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	store, err := postgres.Dial(ctx, access, cfg)
	if err != nil {
		t.Fatalf("dial: %v", err)
	}
	t.Cleanup(func() { _ = store.Close() })
	return store
}

// place is a Store over a database of its own, and a way around it.
type place struct {
	*postgres.Store

	t    parity.T
	url  string
	raw  *pgxpool.Pool
	told chan postgres.Incident
}

// newPlace makes a database and a Store over it.
func newPlace(t *testing.T) *place {
	t.Helper()
	return placeAt(t, postgres.Access{URL: testenv.Postgres(t).Database(t)}, config())
}

// placeAt opens a Store whose incidents the place collects.
func placeAt(t parity.T, access postgres.Access, cfg postgres.Config) *place {
	t.Helper()
	p := &place{t: t, url: access.URL, raw: raw(t, access.URL), told: make(chan postgres.Incident, 1000)}
	cfg.Report = func(i postgres.Incident) {
		select {
		case p.told <- i:
		default:
		}
	}
	p.Store = dial(t, access, cfg)
	return p
}

// another is a second Store over the place's database.
func (p *place) another() *postgres.Store {
	p.t.Helper()
	return dial(p.t, postgres.Access{URL: p.url}, config())
}

// exec changes the database behind the Store's back.
func (p *place) exec(sql string, args ...any) {
	p.t.Helper()
	if _, err := p.raw.Exec(p.t.Context(), sql, args...); err != nil {
		p.t.Fatalf("execute %q: %v", sql, err)
	}
}

// one asks the database for one value.
func one[V any](p *place, sql string, args ...any) V {
	p.t.Helper()
	var v V
	if err := p.raw.QueryRow(p.t.Context(), sql, args...).Scan(&v); err != nil {
		p.t.Fatalf("query %q: %v", sql, err)
	}
	return v
}

// hears waits until the Store has reported an incident of the kind.
func (p *place) hears(kind postgres.IncidentKind) postgres.Incident {
	p.t.Helper()
	timeout := time.After(patience)
	for {
		select {
		case i := <-p.told:
			if i.Kind == kind {
				return i
			}
		case <-timeout:
			p.t.Fatalf("the store did not report %s", kind)
			return postgres.Incident{}
		}
	}
}

// open opens a session.
func (p *place) open(ttl time.Duration) lock.Session {
	p.t.Helper()
	s, err := p.OpenSession(p.t.Context(), port.OpenRequest{Owner: "tester", TTL: ttl})
	if err != nil {
		p.t.Fatalf("open session: %v", err)
	}
	return s
}

// kill ends a session as an operator would by hand.
func (p *place) kill(id lock.SessionID) { kill(p.t, p.raw, id) }

func kill(t parity.T, pool *pgxpool.Pool, id lock.SessionID) {
	t.Helper()
	tag, err := pool.Exec(t.Context(), "UPDATE fencelock.lock_session SET ended_at = clock_timestamp() WHERE secret = $1::uuid", id.Reveal())
	if err != nil || tag.RowsAffected() != 1 {
		t.Fatalf("kill session: %v, %v", tag, err)
	}
}

// grab acquires a key of the default namespace, which must be free.
func (p *place) grab(name string, session lock.Session) lock.Grant {
	p.t.Helper()
	return p.grabWith(request(key(p.t, name), session.ID))
}

func (p *place) grabWith(req port.GrantRequest) lock.Grant {
	p.t.Helper()
	a, err := p.TryInsert(p.t.Context(), req)
	if err != nil || !a.Granted {
		p.t.Fatalf("acquire %s: %+v, %v", req.Key, a, err)
	}
	return a.Grant
}

func (p *place) release(g lock.Grant) {
	p.t.Helper()
	if ok, err := p.DeleteIfOwner(p.t.Context(), g.Key, g.Session, g.Token); !ok || err != nil {
		p.t.Fatalf("release %s: %v, %v", g.Key, ok, err)
	}
}

func key(t parity.T, name string) lock.Key {
	t.Helper()
	k, err := lock.NewKey("", name)
	if err != nil {
		t.Fatalf("key %q: %v", name, err)
	}
	return k
}

// request asks for a key under a fresh request id.
func request(k lock.Key, session lock.SessionID) port.GrantRequest {
	return port.GrantRequest{Key: k, Session: session, RequestID: lock.RequestID(lock.NewSessionID().Reveal())}
}

// expect compares the code of an error with that of a sentinel.
func expect(t *testing.T, what string, err, want error) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Errorf("%s: got %v, want %v", what, err, want)
	}
}

// refused expects an error that is retryable and says that nothing was carried out.
func refused(t *testing.T, what string, err error) {
	t.Helper()
	if !lock.IsRetryable(err) || lock.IsAmbiguous(err) {
		t.Errorf("%s: got %v (ambiguous %v), want a retryable refusal", what, err, lock.IsAmbiguous(err))
	}
}

// eventually waits for a condition.
func eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	timeout := time.After(patience)
	for !holds() {
		select {
		case <-tick.C:
		case <-timeout:
			t.Fatalf("waited in vain: %s", what)
		}
	}
}

// activity lists the other connections whose statement is like the pattern.
const activity = "SELECT pid FROM pg_stat_activity WHERE state = 'active' AND query LIKE $1 AND pid <> pg_backend_pid() AND datname = current_database()"

// rows counts what a query gives.
func rows(t *testing.T, pool *pgxpool.Pool, sql string, args ...any) int {
	t.Helper()
	var n int
	if err := pool.QueryRow(t.Context(), "SELECT count(*) FROM ("+sql+") AS q", args...).Scan(&n); err != nil {
		t.Fatalf("count %q: %v", sql, err)
	}
	return n
}

// terminate ends the connections whose statement is like the pattern, and reports whether there were any.
func terminate(t *testing.T, pool *pgxpool.Pool, pattern string) bool {
	t.Helper()
	return rows(t, pool, "SELECT pg_terminate_backend(pid) FROM ("+activity+") AS a", pattern) > 0
}

func mustExec(t *testing.T, pool *pgxpool.Pool, sql string) {
	t.Helper()
	if _, err := pool.Exec(t.Context(), sql); err != nil {
		t.Fatalf("execute %q: %v", sql, err)
	}
}
