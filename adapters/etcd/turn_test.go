package etcd_test

import (
	"context"
	"sync/atomic"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/fencelock/fencelock/adapters/etcd"
	"github.com/fencelock/fencelock/core/lock"
	"github.com/fencelock/fencelock/core/port"
	"github.com/fencelock/fencelock/tools/testenv"
)

// lostWatcher is what a restore leaves of a watch: the client resumes it at a revision that the store has not reached
// yet, so it stays open and shows nothing. Watches that are opened afterwards work. A negative number of restores
// makes all deaf.
type lostWatcher struct {
	clientv3.Watcher

	restores atomic.Int64
}

func (w *lostWatcher) Watch(ctx context.Context, key string, opts ...clientv3.OpOption) clientv3.WatchChan {
	born := w.restores.Load()
	in, out := w.Watcher.Watch(ctx, key, opts...), make(chan clientv3.WatchResponse)
	go func() {
		defer close(out)
		for resp := range in {
			if now := w.restores.Load(); born != now || now < 0 {
				continue
			}
			select {
			case out <- resp:
			case <-ctx.Done():
				return
			}
		}
	}()
	return out
}

// TestWatchesStartAnewAfterARestore: once where the Store sees that the store went back, once where only the operator's
// raising of the floor tells.
func TestWatchesStartAnewAfterARestore(t *testing.T) {
	t.Parallel()
	for name, notice := range map[string]func(p *place, kv *past){
		"seen by an answer": func(p *place, kv *past) {
			kv.back.Store(1_000_000)
			if _, err := p.Read(p.t.Context(), key(p.t, "any")); err != nil {
				p.t.Fatal(err)
			}
			kv.back.Store(0)
		},
		"told by a raised floor": func(p *place, _ *past) { p.raise() },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server, prefix := testenv.Etcd(t), freshPrefix()
			client := raw(t, server.Endpoints)
			kv, watcher := &past{KV: client}, &lostWatcher{Watcher: client}
			store, err := etcd.New(t.Context(), etcd.Clients{
				KV: kv, Watcher: watcher, Lease: clientv3.RetryLeaseClient(client), Maintenance: client,
				Endpoints: server.Endpoints,
			}, config(prefix))
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = store.Close() })
			p := &place{Store: store, t: t, raw: client, prefix: prefix}
			session := p.open(lock.MaxTTL)
			w, sub := p.Register(key(t, "waited-for"), 0), p.Subscribe()
			defer w.Cancel()
			defer sub.Close()
			fires(t, "the watch that is now in place", w)
			if ev := <-sub.Events(); ev.Kind != port.Resync {
				t.Fatalf("the first event is %+v, want a Resync", ev)
			}
			watcher.restores.Add(1)
			notice(p, kv)
			fires(t, "the watch that has started anew", w)
			eventually(t, "subscribers look for themselves", func() bool {
				select {
				case ev := <-sub.Events():
					return ev.Kind == port.Resync
				default:
					return false
				}
			})
			p.revoke(session)
			eventually(t, "the feed tells of a death", func() bool {
				select {
				case ev := <-sub.Events():
					return ev.Kind == port.SessionOver && ev.Session.Equal(session.ID)
				default:
					return false
				}
			})
		})
	}
}
