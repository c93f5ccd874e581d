package postgres_test

import (
	"context"
	"sync"
	"testing"

	"github.com/fencelock/fencelock/adapters/postgres"
	"github.com/fencelock/fencelock/core/lock"
	"github.com/fencelock/fencelock/tools/testenv"
)

// TestBehindAPooler does everything through a real one, with two connections behind it for all servers.
func TestBehindAPooler(t *testing.T) {
	t.Parallel()
	direct := testenv.Postgres(t).Database(t)
	pooled := testenv.PgBouncer(t, direct, "default_pool_size=2")
	admin := raw(t, direct)

	// Servers of a new installation start together.
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	var work sync.WaitGroup
	for range 4 {
		work.Go(func() {
			if err := postgres.Migrate(ctx, postgres.Access{URL: pooled, Pooler: true}); err != nil {
				t.Errorf("migrate: %v", err)
			}
		})
	}
	work.Wait()

	access := postgres.Access{URL: pooled, Pooler: true, ListenURL: direct}
	p := &place{t: t, url: direct, raw: admin, Store: dial(t, access, config())}
	other := dial(t, access, config())
	for range 3 {
		p.goThrough(t)
	}
	if err := p.Ping(t.Context()); err != nil {
		t.Errorf("ping: %v", err)
	}

	// The news of a release comes by the direct way.
	session := p.open(lock.MaxTTL)
	held := p.grab("awaited", session)
	wake := other.Register(held.Key, held.Token)
	defer wake.Cancel()
	if a, err := other.TryInsert(t.Context(), request(held.Key, p.open(lock.MaxTTL).ID)); err != nil || a.Granted {
		t.Fatalf("acquire of a held key: %+v, %v", a, err)
	}
	for len(wake.Fired()) > 0 {
		<-wake.Fired()
	}
	p.release(held)
	<-wake.Fired()

	// A key that somebody has locked delays nobody else, also where there are only two connections.
	tx, err := admin.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tx.Exec(t.Context(), "SELECT FROM fencelock.lock_entry WHERE key = 'awaited' FOR UPDATE"); err != nil {
		t.Fatal(err)
	}
	stuck, cancelStuck := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		_, err := other.TryInsert(stuck, request(held.Key, session.ID))
		ended <- err
	}()
	eventually(t, "the call waits for the row", func() bool {
		return rows(t, admin, activity+" AND wait_event_type = 'Lock'", "%lock_entry%") == 1
	})
	p.release(p.grab("free", session))
	cancelStuck()
	refused(t, "the call that waited", <-ended)
	_ = tx.Rollback(t.Context())
	p.release(p.grab("awaited", session))
}

// TestPoolerWithoutADirectWay: nothing listens; what this server does itself still wakes those who wait there.
func TestPoolerWithoutADirectWay(t *testing.T) {
	t.Parallel()
	direct := testenv.Postgres(t).Database(t)
	pooled := testenv.PgBouncer(t, direct)
	p := &place{t: t, url: direct, raw: raw(t, direct), Store: dial(t, postgres.Access{URL: pooled, Pooler: true}, config())}
	session := p.open(lock.MaxTTL)
	held := p.grab("a", session)
	wake := p.Register(held.Key, held.Token)
	defer wake.Cancel()
	if a, err := p.TryInsert(t.Context(), request(held.Key, p.open(lock.MaxTTL).ID)); err != nil || a.Granted {
		t.Fatalf("acquire of a held key: %+v, %v", a, err)
	}
	for len(wake.Fired()) > 0 {
		<-wake.Fired()
	}
	p.release(held)
	<-wake.Fired()
	if n := rows(t, p.raw, "SELECT FROM pg_stat_activity WHERE query LIKE 'LISTEN%' AND datname = current_database()"); n != 0 {
		t.Errorf("%d connections listen", n)
	}
}
