package etcd_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/fencelock/fencelock/adapters/etcd"
	"github.com/fencelock/fencelock/core/lock"
	"github.com/fencelock/fencelock/core/port"
	"github.com/fencelock/fencelock/tools/testenv"
)

// newWithKV is a place whose Store asks kv, which its raw client has been wrapped in.
func newWithKV(t *testing.T, prefix string, wrap func(clientv3.KV) clientv3.KV) *place {
	t.Helper()
	server := testenv.Etcd(t)
	client := raw(t, server.Endpoints)
	store, err := etcd.New(t.Context(), etcd.Clients{
		KV: wrap(client), Watcher: client, Lease: clientv3.RetryLeaseClient(client), Maintenance: client,
		Endpoints: server.Endpoints,
	}, config(prefix))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = store.Close() })
	return &place{Store: store, t: t, raw: client, prefix: prefix}
}

// between calls a function once, before the n-th transaction from now.
type between struct {
	clientv3.KV

	n  atomic.Int64
	do func()
}

type betweenTxn struct {
	clientv3.Txn

	kv *between
}

func (b *between) Txn(ctx context.Context) clientv3.Txn { return &betweenTxn{b.KV.Txn(ctx), b} }

func (x *betweenTxn) If(c ...clientv3.Cmp) clientv3.Txn  { x.Txn = x.Txn.If(c...); return x }
func (x *betweenTxn) Then(o ...clientv3.Op) clientv3.Txn { x.Txn = x.Txn.Then(o...); return x }
func (x *betweenTxn) Else(o ...clientv3.Op) clientv3.Txn { x.Txn = x.Txn.Else(o...); return x }

func (x *betweenTxn) Commit() (*clientv3.TxnResponse, error) {
	if x.kv.n.Add(-1) == 0 {
		x.kv.do()
	}
	return x.Txn.Commit()
}

func (p *place) condemn(name string) lock.Revocation {
	p.t.Helper()
	r, err := p.Revoke(p.t.Context(), port.RevokeRequest{Key: key(p.t, name), Operator: "op", Reason: "a reason"})
	if err != nil {
		p.t.Fatalf("revoke %s: %v", name, err)
	}
	return r
}

func (p *place) raise() port.FloorRaised {
	p.t.Helper()
	raised, err := p.RaiseFloor(p.t.Context(), port.FloorRequest{Operator: "op", Reason: "raised"})
	if err != nil {
		p.t.Fatalf("raise floor: %v", err)
	}
	return raised
}

// listed returns the audit records of the default namespace in pages of the size.
func (p *place) listed(size int) []lock.Revocation {
	p.t.Helper()
	var all []lock.Revocation
	for token := ""; ; {
		list, next, err := p.Revocations(p.t.Context(), lock.DefaultNamespace, port.Page{Size: size, Token: token})
		if err != nil {
			p.t.Fatalf("list revocations: %v", err)
		}
		if all, token = append(all, list...), next; next == "" {
			return all
		}
	}
}

// TestActsAreListedInTheOrderOfTheirEffect: other acts are carried out between the look of one and its step.
func TestActsAreListedInTheOrderOfTheirEffect(t *testing.T) {
	t.Parallel()
	for name, last := range map[string]func(p *place) lock.Token{
		"a revocation":   func(p *place) lock.Token { return p.condemn("slow").Floor },
		"a raised floor": func(p *place) lock.Token { return p.raise().Floor },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			prefix := freshPrefix()
			kv := &between{}
			slow := newWithKV(t, prefix, func(c clientv3.KV) clientv3.KV { kv.KV = c; return kv })
			other := newWithKV(t, prefix, func(c clientv3.KV) clientv3.KV { return c })
			session := other.open(lock.MaxTTL)
			other.grab("early", session)
			kv.do = func() {
				other.raise()
				other.grab("quick", session)
				other.grab("slow", session)
				other.condemn("quick")
			}
			other.grab("slow", session)
			other.grab("quick", session)
			kv.n.Store(2) // the look is the first
			floor := last(slow)
			list := slow.listed(1)
			if len(list) != 3 || list[0].Floor != floor {
				t.Fatalf("listed are %+v, want 3 records and the newest with floor %d", list, floor)
			}
			for i := range list[1:] {
				if list[i].Floor <= list[i+1].Floor || list[i].ID <= list[i+1].ID {
					t.Errorf("%+v is listed before %+v", list[i], list[i+1])
				}
			}
		})
	}
}

func TestManyActsAtOnceAllSucceedInOrder(t *testing.T) {
	t.Parallel()
	const acts = 64
	p := newPlace(t)
	stores := []*place{p, {Store: dial(t, testenv.Etcd(t).Endpoints, config(p.prefix)), t: t, prefix: p.prefix}}
	session := p.open(lock.MaxTTL)
	for i := range acts {
		p.grab(fmt.Sprint("key/", i), session)
	}
	var group sync.WaitGroup
	for i := range acts {
		req := port.RevokeRequest{Key: key(t, fmt.Sprint("key/", i)), Operator: "op", Reason: "a reason"}
		group.Go(func() {
			if _, err := stores[i%2].Revoke(t.Context(), req); err != nil {
				t.Errorf("revoke: %v", err)
			}
		})
	}
	group.Wait()
	list := p.listed(10)
	if len(list) != acts {
		t.Fatalf("%d records, want %d", len(list), acts)
	}
	for i := range list[1:] {
		if list[i].Floor <= list[i+1].Floor || list[i].ID <= list[i+1].ID {
			t.Errorf("%+v is listed before %+v", list[i], list[i+1])
		}
	}
}

// reading counts what the answers to transactions hold.
type reading struct {
	clientv3.KV

	pairs atomic.Int64
}

type readingTxn struct {
	clientv3.Txn

	kv *reading
}

func (r *reading) Txn(ctx context.Context) clientv3.Txn { return &readingTxn{r.KV.Txn(ctx), r} }

func (x *readingTxn) If(c ...clientv3.Cmp) clientv3.Txn  { x.Txn = x.Txn.If(c...); return x }
func (x *readingTxn) Then(o ...clientv3.Op) clientv3.Txn { x.Txn = x.Txn.Then(o...); return x }
func (x *readingTxn) Else(o ...clientv3.Op) clientv3.Txn { x.Txn = x.Txn.Else(o...); return x }

func (x *readingTxn) Commit() (*clientv3.TxnResponse, error) {
	resp, err := x.Txn.Commit()
	if err == nil {
		for _, answer := range resp.Responses {
			x.kv.pairs.Add(int64(len(answer.GetResponseRange().GetKvs())))
		}
	}
	return resp, err
}

// TestPageOfAQuietNamespaceReadsLittle: others may have as many records as they like.
func TestPageOfAQuietNamespaceReadsLittle(t *testing.T) {
	t.Parallel()
	kv := &reading{}
	p := newWithKV(t, freshPrefix(), func(c clientv3.KV) clientv3.KV { kv.KV = c; return kv })
	session := p.open(lock.MaxTTL)
	for range 20 {
		p.grab("busy", session)
		p.condemn("busy")
	}
	kv.pairs.Store(0)
	list, next, err := p.Revocations(t.Context(), "quiet", port.Page{Size: 2})
	if n := kv.pairs.Load(); err != nil || len(list) != 0 || next != "" || n > 6 {
		t.Errorf("a page of 2 of a quiet namespace: %d records, next %q, %v, %d values read", len(list), next, err, n)
	}
}
