package etcd_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/fencelock/fencelock/adapters/etcd"
	"github.com/fencelock/fencelock/core/lock"
	"github.com/fencelock/fencelock/core/port"
	"github.com/fencelock/fencelock/tools/testenv"
)

// fires waits for a wake.
func fires(t *testing.T, what string, w port.Wake) {
	t.Helper()
	select {
	case <-w.Fired():
	case <-time.After(patience):
		t.Fatalf("not woken within %v by %s", patience, what)
	}
}

func quiet(t *testing.T, what string, w port.Wake) {
	t.Helper()
	select {
	case <-w.Fired():
		t.Errorf("woken by %s", what)
	default:
	}
}

func (p *place) release(g lock.Grant) {
	p.t.Helper()
	if ok, err := p.DeleteIfOwner(p.t.Context(), g.Key, g.Session, g.Token); !ok || err != nil {
		p.t.Fatalf("release %s: %v, %v", g.Key, ok, err)
	}
}

// settle returns once the shared watch is in place and has shown everything that
// happened before.
func (p *place) settle(session lock.Session) {
	p.t.Helper()
	w := p.Register(key(p.t, "probe"), 0)
	defer w.Cancel()
	for range 2 { // the first may be the wake for a watch just opened
		p.release(p.grab("probe", session))
		fires(p.t, "the release of the probe", w)
	}
	p.release(p.grab("probe", session))
	fires(p.t, "the release of the probe", w)
}

// TestMissedReleaseNeedsTheSecondTry: the release happens after the failed attempt and before the
// registration, and nothing will wake that. Only the try after the registration sees it.
func TestMissedReleaseNeedsTheSecondTry(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	holder, waiter := p.open(lock.MaxTTL), p.open(lock.MaxTTL)
	g := p.grab("race", holder)
	open := p.Register(key(t, "race"), g.Token) // keeps the watch open
	defer open.Cancel()
	p.settle(holder)
	<-open.Fired() // the watch is in place
	req := request(g.Key, waiter.ID)
	if a, err := p.TryInsert(t.Context(), req); err != nil || a.Granted {
		t.Fatalf("first attempt: %+v, %v, want held", a, err)
	}
	p.release(g)
	fires(t, "the release", open)
	p.settle(holder)
	late := p.Register(g.Key, g.Token)
	defer late.Cancel()
	p.settle(holder)
	quiet(t, "a release before the registration: the test shows nothing", late)
	if a, err := p.TryInsert(t.Context(), req); err != nil || !a.Granted {
		t.Fatalf("second attempt: %+v, %v, want granted", a, err)
	}
}

func TestRegistrationBeforeTheWatchIsInPlaceIsWokenOnce(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	w := p.Register(key(t, "first"), 0)
	defer w.Cancel()
	fires(t, "the watch that is now in place", w)
	p.settle(p.open(lock.MaxTTL))
	quiet(t, "nothing", w)
}

func TestOnlyTheEndOfAGrantWakes(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	holder, other := p.open(lock.MaxTTL), p.open(lock.MaxTTL)
	req := request(key(t, "leased"), holder.ID)
	req.Lease = time.Minute
	g := p.grabWith(req)
	w := p.Register(g.Key, g.Token)
	defer w.Cancel()
	p.settle(holder)
	<-w.Fired()
	if _, err := p.Extend(t.Context(), g.Key, g.Session, g.Token, lock.MaxTTL); err != nil {
		t.Fatalf("extend: %v", err)
	}
	p.release(p.grab("leased/below", other))
	p.release(p.grab("lease", other))
	p.settle(holder)
	quiet(t, "an extension or the release of another key", w)
	p.revoke(holder)
	fires(t, "the death of the holder's session", w)
}

func TestReleaseDuringABrokenWatchWakesAfterIt(t *testing.T) {
	t.Parallel()
	server, prefix := testenv.Etcd(t), freshPrefix()
	proxy := testenv.NewProxy(t, server.Endpoints[0])
	behind := &place{Store: dial(t, []string{proxy.Addr}, config(prefix)), t: t, prefix: prefix}
	p := &place{Store: dial(t, server.Endpoints, config(prefix)), t: t, prefix: prefix}
	session := p.open(lock.MaxTTL)
	g := p.grab("broken", session)
	w := behind.Register(g.Key, g.Token)
	defer w.Cancel()
	fires(t, "the watch that is now in place", w)
	proxy.Cut()
	p.release(g)
	quiet(t, "a release beyond a broken connection", w)
	proxy.Heal()
	fires(t, "a release during the break", w)
}

func TestLostHistoryWakesEveryone(t *testing.T) {
	t.Parallel()
	server, prefix := testenv.StartEtcd(t), freshPrefix()
	proxy := testenv.NewProxy(t, server.Endpoints[0])
	incidents := make(chan etcd.Incident, 64)
	cfg := config(prefix)
	cfg.Report = func(i etcd.Incident) { incidents <- i }
	behind := &place{Store: dial(t, []string{proxy.Addr}, cfg), t: t, prefix: prefix}
	p := &place{
		Store: dial(t, server.Endpoints, config(prefix)), t: t, raw: raw(t, server.Endpoints), prefix: prefix,
	}
	session := p.open(lock.MaxTTL)
	g := p.grab("compacted", session)
	w := behind.Register(g.Key, g.Token)
	defer w.Cancel()
	behind.settle(session)
	<-w.Fired()
	proxy.Cut()
	p.release(g)
	p.release(p.grab("other", session))
	resp, err := p.raw.Get(t.Context(), "rev")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := p.raw.Compact(t.Context(), resp.Header.GetRevision()); err != nil {
		t.Fatal(err)
	}
	proxy.Heal()
	fires(t, "a watch that had to start anew", w)
	for i := range incidents {
		if i.Kind == etcd.WatchRestarted {
			return
		}
	}
}

// TestReleaseAmongOtherWritesWakes: a watch opened at a past revision is served every 100 ms
// only; the shared one is in step. BenchmarkWake prints how fast that is.
func TestReleaseAmongOtherWritesWakes(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	session := p.open(lock.MaxTTL)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	written := make(chan struct{}, 1)
	go write(ctx, p.raw, p.prefix, time.Millisecond, written)
	w := p.Register(key(t, "among"), 0)
	defer w.Cancel()
	fires(t, "the watch that is now in place", w)
	for range 20 {
		g := p.grab("among", session)
		<-written
		p.release(g)
		fires(t, "a release", w)
	}
}

// write writes keys outside the prefix's folders until ctx ends.
func write(ctx context.Context, client *clientv3.Client, prefix string, every time.Duration, written chan<- struct{}) {
	tick := time.NewTicker(every)
	defer tick.Stop()
	for i := 0; ; i++ {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		if _, err := client.Put(ctx, fmt.Sprintf("%sz/%d", prefix, i%100), "noise"); err != nil {
			return
		}
		select {
		case written <- struct{}{}:
		default:
		}
	}
}
