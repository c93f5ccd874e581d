package etcd_test

import (
	"context"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/fencelock/fencelock/adapters/etcd"
	"github.com/fencelock/fencelock/core/lock"
	"github.com/fencelock/fencelock/core/port"
	"github.com/fencelock/fencelock/tools/testenv"
)

// forgetful is a watcher whose events come without what was there before, as they do once that is compacted.
type forgetful struct{ clientv3.Watcher }

func (w forgetful) Watch(ctx context.Context, key string, opts ...clientv3.OpOption) clientv3.WatchChan {
	in, out := w.Watcher.Watch(ctx, key, opts...), make(chan clientv3.WatchResponse)
	go func() {
		defer close(out)
		for resp := range in {
			for _, ev := range resp.Events {
				ev.PrevKv = nil
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

func TestDeathOfAnUnknownSessionIsAResync(t *testing.T) {
	t.Parallel()
	server, prefix := testenv.Etcd(t), freshPrefix()
	client := raw(t, server.Endpoints)
	store, err := etcd.New(t.Context(), etcd.Clients{
		KV: client, Watcher: forgetful{client}, Lease: clientv3.RetryLeaseClient(client), Maintenance: client,
		Endpoints: server.Endpoints,
	}, config(prefix))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = store.Close() })
	p := &place{Store: store, t: t, raw: client, prefix: prefix}
	session, sub := p.open(lock.MaxTTL), p.Subscribe()
	defer sub.Close()
	if ev := <-sub.Events(); ev.Kind != port.Resync {
		t.Fatalf("the first event is %+v, want a Resync", ev)
	}
	p.revoke(session)
	if ev := <-sub.Events(); ev.Kind != port.Resync {
		t.Errorf("the death of who knows whom is told as %+v, want a Resync", ev)
	}
}
