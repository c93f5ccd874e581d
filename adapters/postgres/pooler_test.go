package postgres_test

import (
	"context"
	"encoding/binary"
	"io"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

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
	stuck, cancelStuck := context.WithCancel(unhurried(t))
	ended := make(chan error, 1)
	go func() {
		_, err := other.TryInsert(stuck, request(held.Key, session.ID))
		ended <- err
	}()
	waits := func(n int) func() bool {
		return func() bool { return rows(t, admin, activity+" AND wait_event_type = 'Lock'", "%lock_entry%") == n }
	}
	eventually(t, "the call waits for the row", waits(1))
	p.release(p.grab("free", session))
	cancelStuck()
	// The pooler is not asked to cancel: a statement whose end is not heard soon enough may yet be carried out, while the row is free.
	if err := <-ended; !lock.IsRetryable(err) {
		t.Errorf("the call that waited: %v", err)
	}
	eventually(t, "nothing waits for the row", waits(0))
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

// TestAPoolerIsNotAskedToCancel: pgbouncer 1.18 can crash under requests to cancel. A database itself is asked, which shows that the
// count counts.
func TestAPoolerIsNotAskedToCancel(t *testing.T) {
	t.Parallel()
	for _, pooler := range []bool{true, false} {
		url := testenv.Postgres(t).Database(t)
		relay, cancels := relayTo(t, address(t, url))
		work := openPools(t, postgres.Access{URL: strings.Replace(url, address(t, url), relay, 1), Pooler: pooler}).Work()
		conn, err := work.Acquire(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
		if _, err := conn.Exec(ctx, "SELECT pg_sleep(30)"); err == nil {
			t.Error("a cancelled call succeeded")
		}
		cancel()
		_ = conn.Conn().Close(t.Context())
		conn.Release()
		if asked := cancels.Load() > 0; asked == pooler {
			t.Errorf("with pooler=%v there were %d requests to cancel", pooler, cancels.Load())
		}
	}
}

// relayTo passes connections on to a database, and counts those that are requests to cancel.
func relayTo(t *testing.T, database string) (addr string, cancels *atomic.Int64) {
	t.Helper()
	listener, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	cancels = new(atomic.Int64)
	var relays sync.WaitGroup
	t.Cleanup(relays.Wait)
	t.Cleanup(func() { _ = listener.Close() })
	relays.Go(func() {
		for {
			client, err := listener.Accept()
			if err != nil {
				return
			}
			relays.Go(func() { relayOne(client, database, cancels) })
		}
	})
	return listener.Addr().String(), cancels
}

func relayOne(client net.Conn, database string, cancels *atomic.Int64) {
	const cancelCode = 80877102 // of the protocol
	defer func() { _ = client.Close() }()
	start := make([]byte, 8)
	if _, err := io.ReadFull(client, start); err != nil {
		return
	}
	if binary.BigEndian.Uint32(start[4:]) == cancelCode {
		cancels.Add(1)
	}
	server, err := net.Dial("tcp", database)
	if err != nil {
		return
	}
	defer func() { _ = server.Close() }()
	if _, err := server.Write(start); err != nil {
		return
	}
	go func() {
		_, _ = io.Copy(server, client)
		_ = server.Close()
	}()
	_, _ = io.Copy(client, server)
}
