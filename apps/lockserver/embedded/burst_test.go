package embedded_test

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fencelock/fencelock/adapters/etcd"
	"github.com/fencelock/fencelock/apps/lockserver/embedded"
	"github.com/fencelock/fencelock/core/clock"
	"github.com/fencelock/fencelock/core/lock"
	"github.com/fencelock/fencelock/core/port"
)

// patience bounds what must happen.
const patience = 2 * time.Minute

func over(t *testing.T, e *embedded.Etcd) *etcd.Store {
	t.Helper()
	store, err := etcd.New(t.Context(), etcd.Clients{
		KV: e.Client(), Watcher: e.Client(), Lease: e.Lease(), Maintenance: e.Client(), Endpoints: []string{embedded.Name},
	}, etcd.Config{Clock: clock.Boot{}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = store.Close() })
	return store
}

// TestABurstOfClosesLeavesTheWatchesAlive: the in-process client has one watch stream for everyone. It must
// still bring what ends after hundreds of sessions were closed at the same time, and the Store must still end.
func TestABurstOfClosesLeavesTheWatchesAlive(t *testing.T) {
	const workers, closes = 32, 4000
	store := over(t, start(t, t.TempDir()))
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	key, err := lock.NewKey("", "after-the-burst")
	if err != nil {
		t.Fatal(err)
	}
	wake, early := store.Register(key, 0), store.Subscribe()
	await(ctx, t, "the watch of waiters", wake.Fired())
	await(ctx, t, "the feed", early.Events())

	burst(ctx, t, store, workers, closes)

	sub := store.Subscribe() // the early one has fallen behind
	session, err := store.OpenSession(ctx, port.OpenRequest{Owner: "last", TTL: lock.MaxTTL})
	if err != nil {
		t.Fatal(err)
	}
	if a, err := store.TryInsert(ctx, port.GrantRequest{Key: key, Session: session.ID, RequestID: "r"}); err != nil || !a.Granted {
		t.Fatalf("acquire: %+v, %v", a, err)
	}
	if n, err := store.CloseSession(ctx, session.ID); n != 1 || err != nil {
		t.Errorf("close: %d, %v, want 1 grant", n, err)
	}
	await(ctx, t, "the wake of a waiter", wake.Fired())
	for {
		if ev := await(ctx, t, "the end of the session", sub.Events()); ev.Session.Equal(session.ID) {
			break
		}
	}
	closed := make(chan error, 1)
	go func() { closed <- store.Close() }()
	if err := await(ctx, t, "the end of the store", closed); err != nil {
		t.Errorf("close store: %v", err)
	}
}

// burst opens and closes sessions, many at a time. A store that is too busy to answer says so, and is asked again.
func burst(ctx context.Context, t *testing.T, store *etcd.Store, workers, closes int) {
	t.Helper()
	var left atomic.Int64
	left.Store(int64(closes))
	var group sync.WaitGroup
	for range workers {
		group.Go(func() {
			for left.Load() > 0 {
				session, err := store.OpenSession(ctx, port.OpenRequest{Owner: "burst", TTL: lock.MaxTTL})
				if err == nil {
					_, err = store.CloseSession(ctx, session.ID)
				}
				switch {
				case err == nil:
					left.Add(-1)
				case ctx.Err() != nil || !lock.IsRetryable(err):
					t.Errorf("with %d to go: %v", left.Load(), err)
					return
				}
			}
		})
	}
	group.Wait()
	if t.Failed() {
		t.FailNow()
	}
}

// await returns the next value of the channel.
func await[V any](ctx context.Context, t *testing.T, what string, from <-chan V) V {
	t.Helper()
	select {
	case v := <-from:
		return v
	case <-ctx.Done():
		t.Fatalf("%s did not come", what)
	}
	panic("unreachable")
}
