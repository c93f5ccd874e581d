package etcd_test

import (
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/fencelock/fencelock/adapters/etcd"
	"github.com/fencelock/fencelock/core/lock"
	"github.com/fencelock/fencelock/core/port"
	"github.com/fencelock/fencelock/tools/testenv"
)

// newDeaf is a place whose watches go deaf by hand, and whose clock moves by hand.
func newDeaf(t *testing.T) (*place, *lostWatcher, *handClock) {
	t.Helper()
	server, prefix := testenv.Etcd(t), freshPrefix()
	client := raw(t, server.Endpoints)
	watcher, hand := &lostWatcher{Watcher: client}, &handClock{}
	cfg := config(prefix)
	cfg.Clock = hand
	store, err := etcd.New(t.Context(), etcd.Clients{
		KV: client, Watcher: watcher, Lease: clientv3.RetryLeaseClient(client), Maintenance: client,
		Endpoints: server.Endpoints,
	}, cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = store.Close() })
	return &place{Store: store, t: t, raw: client, prefix: prefix}, watcher, hand
}

// ready expects that the Store says it can grant, for as long as the watches get.
func (p *place) ready(what string) {
	p.t.Helper()
	if err := p.Ping(p.t.Context()); err != nil {
		p.t.Errorf("ping %s: %v", what, err)
	}
}

func TestStoreWhoseWatchesAreStuckIsNotReady(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(p *place, s lock.Session, g lock.Grant){
		"a release is not shown": func(p *place, _ lock.Session, g lock.Grant) { p.release(g) },
		"a close is not shown": func(p *place, s lock.Session, _ lock.Grant) {
			if n, err := p.CloseSession(p.t.Context(), s.ID); n != 1 || err != nil {
				p.t.Errorf("close: %d, %v", n, err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p, watcher, hand := newDeaf(t)
			session := p.open(lock.MaxTTL)
			w := p.Register(key(t, "a"), 0)
			defer w.Cancel()
			fires(t, "the watch that is now in place", w)
			p.settle(session)
			hand.advance(time.Hour)
			p.ready("while there is no news")
			g := p.grab("a", session)
			watcher.restores.Add(1)
			end(p, session, g)
			p.ready("at once")
			hand.advance(time.Minute)
			refused(t, "ping of a Store whose watch is deaf", p.Ping(t.Context()))
		})
	}
}

func TestStoreWhoseWatchIsNotInPlaceIsNotReady(t *testing.T) {
	t.Parallel()
	for name, watch := range map[string]func(p *place){
		"of waiters":  func(p *place) { p.Register(key(p.t, "a"), 0) },
		"of the feed": func(p *place) { p.Subscribe() },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p, watcher, hand := newDeaf(t)
			watcher.restores.Store(-1) // no watch shows anything
			watch(p)
			eventually(t, "the Store misses its watch", func() bool {
				hand.advance(time.Minute)
				return lock.CodeOf(p.Ping(t.Context())) == lock.CodeContention
			})
		})
	}
}

func TestWatchInPlaceIsReady(t *testing.T) {
	t.Parallel()
	p, _, hand := newDeaf(t)
	sub, w := p.Subscribe(), p.Register(key(t, "a"), 0)
	defer w.Cancel()
	if ev := <-sub.Events(); ev.Kind != port.Resync {
		t.Fatalf("the first event is %+v, want a Resync", ev)
	}
	fires(t, "the watch that is now in place", w)
	hand.advance(time.Minute)
	p.ready("with both watches in place")
}
