package etcd_test

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/fencelock/fencelock/adapters/etcd"
	"github.com/fencelock/fencelock/core/lock"
	"github.com/fencelock/fencelock/core/port"
	"github.com/fencelock/fencelock/tools/testenv"

	"context"
)

// past is a store that can go back: it takes off from the revisions that it answers with.
type past struct {
	clientv3.KV

	back atomic.Int64
}

type pastTxn struct {
	clientv3.Txn

	past *past
}

func (p *past) Txn(ctx context.Context) clientv3.Txn { return &pastTxn{p.KV.Txn(ctx), p} }

func (x *pastTxn) If(c ...clientv3.Cmp) clientv3.Txn  { x.Txn = x.Txn.If(c...); return x }
func (x *pastTxn) Then(o ...clientv3.Op) clientv3.Txn { x.Txn = x.Txn.Then(o...); return x }
func (x *pastTxn) Else(o ...clientv3.Op) clientv3.Txn { x.Txn = x.Txn.Else(o...); return x }

func (x *pastTxn) Commit() (*clientv3.TxnResponse, error) {
	resp, err := x.Txn.Commit()
	if err == nil {
		resp.Header.Revision -= x.past.back.Load()
	}
	return resp, err
}

func readToken(t *testing.T, path string) lock.Token {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	n, err := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return lock.Token(n)
}

// stopped shows that a Store makes no grants and does everything else.
func stopped(t *testing.T, p *place, held lock.Grant) {
	t.Helper()
	_, err := p.TryInsert(t.Context(), request(key(t, "refused"), held.Session))
	expect(t, "acquire from an unsafe store", err, lock.ErrUnsafeStore)
	ref := port.GrantRef{Key: held.Key, Session: held.Session, Token: held.Token}
	_, err = p.Handoff(t.Context(), ref, request(held.Key, held.Session))
	expect(t, "handoff in an unsafe store", err, lock.ErrUnsafeStore)
	expect(t, "ping of an unsafe store", p.Ping(t.Context()), lock.ErrUnsafeStore)
	if _, err := p.Heartbeat(t.Context(), held.Session); err != nil {
		t.Errorf("heartbeat: %v", err)
	}
	if info, err := p.Read(t.Context(), held.Key); err != nil || !info.Held {
		t.Errorf("read: %+v, %v", info, err)
	}
	if _, err := p.Extend(t.Context(), held.Key, held.Session, held.Token, 0); err != nil {
		t.Errorf("extend: %v", err)
	}
}

func TestStoreBelowTheWatermarkFileMakesNoGrants(t *testing.T) {
	t.Parallel()
	server, prefix := testenv.Etcd(t), freshPrefix()
	path := filepath.Join(t.TempDir(), "watermark")
	healthy := &place{Store: dial(t, server.Endpoints, config(prefix)), t: t, prefix: prefix}
	session := healthy.open(lock.MaxTTL)
	held := healthy.grab("held", session)

	mark := held.Token + 1_000_000
	if err := os.WriteFile(path, []byte(strconv.FormatInt(int64(mark), 10)), 0o600); err != nil {
		t.Fatal(err)
	}
	cfg := config(prefix)
	cfg.WatermarkFile = path
	incidents := make(chan etcd.Incident, 16)
	cfg.Report = func(i etcd.Incident) { incidents <- i }
	p := &place{Store: dial(t, server.Endpoints, cfg), t: t, prefix: prefix}
	if i := <-incidents; i.Kind != etcd.StoreUnsafe || i.Err == nil {
		t.Errorf("reported %+v", i)
	}
	stopped(t, p, held)
	stopped(t, p, held)

	// A floor raised on another server, and too low, does not help.
	low, err := healthy.RaiseFloor(t.Context(), port.FloorRequest{Above: 10, Operator: "op", Reason: "too low a floor"})
	if err != nil || low.EndedGrants != 1 {
		t.Fatalf("raise floor: %+v, %v", low, err)
	}
	held = healthy.grab("held", session)
	stopped(t, p, held)
	high, err := healthy.RaiseFloor(t.Context(), port.FloorRequest{Above: mark, Operator: "op", Reason: "high enough"})
	if err != nil || high.Floor < mark {
		t.Fatalf("raise floor: %+v, %v", high, err)
	}
	if g := p.grab("held", session); g.Token <= high.Floor {
		t.Errorf("token %d after a floor of %d", g.Token, high.Floor)
	}
	if err := p.Close(); err != nil {
		t.Fatalf("close: %v", err)
	}
	if got := readToken(t, path); got <= high.Floor {
		t.Errorf("the file holds %d after a token above %d", got, high.Floor)
	}
}

func TestStoreThatGoesBackMakesNoGrantsUntilTheFloorIsRaised(t *testing.T) {
	t.Parallel()
	server, prefix := testenv.Etcd(t), freshPrefix()
	client := raw(t, server.Endpoints)
	kv := &past{KV: client}
	store, err := etcd.New(t.Context(), etcd.Clients{
		KV: kv, Watcher: client, Lease: clientv3.RetryLeaseClient(client), Maintenance: client,
		Endpoints: server.Endpoints,
	}, config(prefix))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = store.Close() })
	p := &place{Store: store, t: t, prefix: prefix}
	session := p.open(lock.MaxTTL)
	held := p.grab("held", session)
	kv.back.Store(1_000_000)
	if _, err := p.Read(t.Context(), held.Key); err != nil {
		t.Fatal(err)
	}
	kv.back.Store(0)
	stopped(t, p, held)
	raised, err := p.RaiseFloor(t.Context(), port.FloorRequest{Above: 5000, Operator: "op", Reason: "after a restore"})
	if err != nil || raised.EndedGrants != 1 {
		t.Fatalf("raise floor: %+v, %v", raised, err)
	}
	if g := p.grab("held", session); g.Token <= held.Token || g.Token <= raised.Floor {
		t.Errorf("token %d after %d and a floor of %d", g.Token, held.Token, raised.Floor)
	}
}

// TestWatermarkFileIsWrittenAndChecked: what the file may hold is tested where it is kept, in core/watermark.
func TestWatermarkFileIsWrittenAndChecked(t *testing.T) {
	t.Parallel()
	server, dir := testenv.Etcd(t), t.TempDir()
	cfg := config(freshPrefix())
	cfg.WatermarkFile = filepath.Join(dir, "watermark")
	p := &place{Store: dial(t, server.Endpoints, cfg), t: t, prefix: cfg.Prefix}
	g := p.grab("a", p.open(lock.MaxTTL))
	eventually(t, "the file holds the newest token", func() bool { return readToken(t, cfg.WatermarkFile) >= g.Token })
	raised, err := p.RaiseFloor(t.Context(), port.FloorRequest{Above: g.Token + 1_000_000, Operator: "op", Reason: "after a restore"})
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Close(); err != nil {
		t.Fatal(err)
	}
	if got := readToken(t, cfg.WatermarkFile); got < raised.Floor {
		t.Errorf("the file holds %d after a floor of %d was raised", got, raised.Floor)
	}
	bad := filepath.Join(dir, "bad")
	if err := os.WriteFile(bad, []byte("abc"), 0o600); err != nil {
		t.Fatal(err)
	}
	for what, path := range map[string]string{
		"file that holds no token": bad, "file in a folder that is missing": filepath.Join(dir, "missing", "watermark"),
	} {
		cfg.WatermarkFile = path
		if store, err := etcd.Dial(t.Context(), etcd.Access{Endpoints: server.Endpoints}, cfg); err == nil {
			_ = store.Close()
			t.Errorf("a watermark %s was accepted", what)
		}
	}
}

func TestRaiseFloorEndsEveryGrantAtOnce(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	other := dial(t, testenv.Etcd(t).Endpoints, config(p.prefix)) // knows the old base
	session := p.open(lock.MaxTTL)
	bound := p.grab("bound", session)
	leased, lapsed := request(key(t, "leased"), session.ID), request(key(t, "lapsed"), session.ID)
	leased.Lease, lapsed.Lease = time.Minute, time.Minute
	capped := p.grabWith(leased)
	p.grabWith(lapsed)
	if _, err := p.raw.Delete(t.Context(), p.prefix+"x/default/lapsed"); err != nil {
		t.Fatal(err)
	}
	above := bound.Token + 1<<40
	raised, err := p.RaiseFloor(t.Context(), port.FloorRequest{Above: above, Operator: "op", Reason: "after a restore"})
	if err != nil || raised.EndedGrants != 2 || raised.Floor < above || raised.At.IsZero() {
		t.Fatalf("raise floor: %+v, %v, want 2 grants ended and a floor of at least %d", raised, err, above)
	}
	if n := p.count("g/") + p.count("x/"); n != 0 {
		t.Errorf("%d keys of grants are left", n)
	}
	for _, g := range []lock.Grant{bound, capped} {
		_, err := other.Extend(t.Context(), g.Key, g.Session, g.Token, 0)
		expect(t, "extend of a grant from before", err, lock.ErrLost)
		if ok, err := other.DeleteIfOwner(t.Context(), g.Key, g.Session, g.Token); ok || err != nil {
			t.Errorf("release of a grant from before: %v, %v", ok, err)
		}
	}
	a, err := other.TryInsert(t.Context(), request(bound.Key, session.ID))
	if err != nil || !a.Granted || a.Grant.Token <= raised.Floor {
		t.Fatalf("acquire: %+v, %v, want a token above %d", a, err, raised.Floor)
	}
	if ok, err := p.DeleteIfOwner(t.Context(), a.Grant.Key, session.ID, a.Grant.Token); !ok || err != nil {
		t.Errorf("release: %v, %v", ok, err)
	}
	for _, bad := range []lock.Token{-1, 1<<62 + 1} {
		_, err := p.RaiseFloor(t.Context(), port.FloorRequest{Above: bad, Operator: "op", Reason: "nonsense"})
		expect(t, "a floor out of range", err, lock.ErrInvalid)
	}
}
