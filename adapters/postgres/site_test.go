package postgres_test

import (
	"context"
	"errors"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/fencelock/fencelock/adapters/postgres"
	"github.com/fencelock/fencelock/contracts/parity"
	"github.com/fencelock/fencelock/core/lock"
	"github.com/fencelock/fencelock/tools/testenv"
)

// Here is what it takes to run the suite under conditions that its binding has no place for. It has to pass under them, but it is
// claimed for [TestParity] alone.

// atOnce is how many cases run at a time. Most of what they do is to wait.
const atOnce = 8

// onSites runs all cases of the suite as subtests, each on a site that it has for itself meanwhile.
func onSites(t *testing.T, run func(t *testing.T, s *site, clause, name string)) {
	t.Helper()
	sites := make(chan *site, atOnce)
	for range atOnce {
		sites <- newSite(t)
	}
	var group sync.WaitGroup
	defer group.Wait()
	for _, full := range parity.Names() {
		clause, _, _ := strings.Cut(full, "_")
		for _, name := range parity.Cases(clause) {
			s := <-sites
			group.Go(func() {
				defer func() { sites <- s }()
				t.Run(clause+"/"+name, func(t *testing.T) { run(t, s, clause, name) })
			})
		}
	}
}

// site is a database that cases use one after another: most take less time than it takes to make one.
type site struct {
	url  string
	pool *pgxpool.Pool
}

func newSite(t *testing.T) *site {
	t.Helper()
	s := &site{url: testenv.Postgres(t).Database(t)}
	s.pool = raw(t, s.url)
	if err := postgres.Migrate(t.Context(), postgres.Access{URL: s.url}); err != nil {
		t.Fatalf("migrate: %v", err)
	}
	return s
}

// ways are how the two Stores of a fixture reach the database.
type ways struct {
	first, second postgres.Access
	// proxies are all that the first one goes through.
	proxies []*testenv.Proxy
	config  postgres.Config
}

// pair is a fixture and its Stores.
type pair struct {
	parity.Fixture
	first, second *postgres.Store
	// stopped: the first one has been.
	stopped atomic.Bool
}

// fixture clears the site and binds the suite to it.
func (s *site) fixture(t parity.T, w ways) *pair {
	t.Helper()
	if _, err := s.pool.Exec(t.Context(), `
DELETE FROM fencelock.lock_entry;
DELETE FROM fencelock.lock_session;
DELETE FROM fencelock.lock_revocation;
UPDATE fencelock.lock_meta SET floor = 0, raises = 0`); err != nil {
		t.Fatalf("clear the site: %v", err)
	}
	if w.config.Clock == nil {
		w.config = config()
	}
	w.first.URL += "&pool_max_conns=8"
	p := &pair{first: dial(t, w.first, w.config), second: dial(t, w.second, w.config)}
	each := func(do func(*testenv.Proxy)) func() {
		return func() {
			for _, proxy := range w.proxies {
				do(proxy)
			}
		}
	}
	cut, heal := each((*testenv.Proxy).Cut), each((*testenv.Proxy).Heal)
	hold, resume := each((*testenv.Proxy).HoldAnswers), each((*testenv.Proxy).ReleaseAnswers)
	p.Fixture = parity.Fixture{
		First: p.first.Backend(), Second: p.second.Backend(),
		KillSession: func(t parity.T, id lock.SessionID) { kill(t, s.pool, id) },
		Partition: func(t parity.T) func() {
			cut()
			unreachable(t, p.first, "partition")
			return heal
		},
		Pause: func(t parity.T) func() {
			silent := raw(t, w.first.URL)
			asked(t, "pause", func(ctx context.Context) (struct{}, error) {
				err := errors.Join(silent.Ping(ctx), warm(ctx, p.first, w.first.Pooler))
				return struct{}{}, postgres.Translate(err, false)
			})
			hold()
			t.Cleanup(resume)
			unanswered(t, silent, "pause")
			return resume
		},
		Stop: func(t parity.T) {
			cut()
			_ = p.first.Close()
			p.stopped.Store(true)
			unreachable(t, p.first, "stop")
		},
	}
	return p
}

// warm opens all connections of a Store. Through a pooler there is nothing to prepare there.
func warm(ctx context.Context, s *postgres.Store, pooler bool) error {
	if !pooler {
		return postgres.Warm(ctx, s)
	}
	work := postgres.PoolsOf(s).Work()
	var conns []*pgxpool.Conn
	defer func() {
		for _, conn := range conns {
			conn.Release()
		}
	}()
	for range work.Config().MaxConns {
		conn, err := work.Acquire(ctx)
		if err != nil {
			return err
		}
		conns = append(conns, conn)
	}
	return nil
}

// toHost is the URL of the same database at another address.
func toHost(t parity.T, text, host string) string {
	t.Helper()
	u, err := url.Parse(text)
	if err != nil {
		t.Fatalf("read URL: %v", err)
	}
	u.Host = host
	return u.String()
}
