package etcd_test

import (
	"context"
	"errors"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/fencelock/fencelock/adapters/etcd"
	"github.com/fencelock/fencelock/core/lock"
	"github.com/fencelock/fencelock/core/port"
	"github.com/fencelock/fencelock/tools/testenv"
)

// place is a Store on the shared etcd with a raw client beside it.
type place struct {
	*etcd.Store

	t      *testing.T
	raw    *clientv3.Client
	prefix string
}

func newPlace(t *testing.T) *place {
	t.Helper()
	server, prefix := testenv.Etcd(t), freshPrefix()
	return &place{
		Store: dial(t, server.Endpoints, config(prefix)), t: t, raw: raw(t, server.Endpoints), prefix: prefix,
	}
}

func (p *place) open(ttl time.Duration) lock.Session {
	p.t.Helper()
	session, err := p.OpenSession(p.t.Context(), port.OpenRequest{Owner: "worker", TTL: ttl})
	if err != nil {
		p.t.Fatalf("open session: %v", err)
	}
	return session
}

func key(t *testing.T, name string) lock.Key {
	t.Helper()
	k, err := lock.NewKey("", name)
	if err != nil {
		t.Fatal(err)
	}
	return k
}

func request(k lock.Key, session lock.SessionID) port.GrantRequest {
	return port.GrantRequest{Key: k, Session: session, RequestID: lock.RequestID(lock.NewSessionID().Reveal())}
}

func (p *place) grab(name string, session lock.Session) lock.Grant {
	p.t.Helper()
	return p.grabWith(request(key(p.t, name), session.ID))
}

func (p *place) grabWith(req port.GrantRequest) lock.Grant {
	p.t.Helper()
	a, err := p.TryInsert(p.t.Context(), req)
	if err != nil || !a.Granted {
		p.t.Fatalf("acquire %s: granted %v, %v", req.Key, a.Granted, err)
	}
	return a.Grant
}

// count returns how many keys stand below the prefix, by one read.
func (p *place) count(under string) int64 {
	p.t.Helper()
	resp, err := p.raw.Get(p.t.Context(), p.prefix+under, clientv3.WithPrefix(), clientv3.WithCountOnly())
	if err != nil {
		p.t.Fatalf("count keys: %v", err)
	}
	return resp.Count
}

// revoke ends the etcd lease of a session behind the Store's back.
func (p *place) revoke(session lock.Session) {
	p.t.Helper()
	if _, err := p.raw.Revoke(p.t.Context(), leaseOf(p.t, p.raw, p.prefix, session.ID)); err != nil {
		p.t.Fatalf("revoke lease: %v", err)
	}
}

// eventually asks again and again until check is true.
func eventually(t *testing.T, what string, check func() bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for !check() {
		select {
		case <-tick.C:
		case <-ctx.Done():
			t.Fatalf("not within %v: %s", patience, what)
		}
	}
}

func expect(t *testing.T, what string, err, want error) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Errorf("%s: got %v, want %v", what, err, want)
	}
}

func TestRevokingTheLeaseFreesAllLocks(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	session := p.open(lock.MaxTTL)
	for _, name := range []string{"a", "b", "c"} {
		p.grab(name, session)
	}
	if n := p.count("g/"); n != 3 {
		t.Fatalf("%d grants stand, want 3", n)
	}
	p.revoke(session)
	if n := p.count(""); n != 0 {
		t.Errorf("%d keys are left of a session whose lease was revoked", n)
	}
}

func TestOneLeasePerSession(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	session := p.open(lock.MaxTTL)
	for _, name := range []string{"a", "b", "c"} {
		p.grab(name, session)
	}
	all, err := p.raw.Get(t.Context(), p.prefix, clientv3.WithPrefix())
	if err != nil {
		t.Fatal(err)
	}
	leases := map[int64]bool{}
	for _, kv := range all.Kvs {
		leases[kv.GetLease()] = true
	}
	if len(leases) != 1 || leases[0] {
		t.Fatalf("the session's keys hang on leases %v, want exactly one", leases)
	}
	resp, err := p.raw.TimeToLive(t.Context(), leaseOf(t, p.raw, p.prefix, session.ID), clientv3.WithAttachedKeys())
	if err != nil {
		t.Fatal(err)
	}
	grants := 0
	for _, attached := range resp.Keys {
		if string(attached) != sessionKey(p.prefix, session.ID) {
			grants++
		}
	}
	if grants != 3 || len(resp.Keys) != 4 {
		t.Errorf("the lease has %d grants and %d keys, want 3 and the session's record", grants, len(resp.Keys))
	}
}

func TestHeartbeatIsAliveUntilTheLeaseIsRevoked(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	session := p.open(lock.DefaultTTL)
	for range 3 {
		v, err := p.Heartbeat(t.Context(), session.ID)
		if err != nil || v.Remaining <= 0 || v.Remaining > lock.DefaultTTL {
			t.Fatalf("heartbeat of a live session: %+v, %v", v, err)
		}
	}
	p.revoke(session)
	for range 2 {
		_, err := p.Heartbeat(t.Context(), session.ID)
		expect(t, "heartbeat after the lease was revoked", err, lock.ErrSessionDead)
	}
}

func TestSilentSessionExpires(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	silent, busy := p.open(lock.MinTTL), p.open(lock.DefaultTTL)
	p.grab("silent", silent)
	eventually(t, "the silent session's keys are gone", func() bool {
		// Calls of other sessions must not keep it alive.
		if _, err := p.Heartbeat(t.Context(), busy.ID); err != nil {
			t.Fatalf("heartbeat of another session: %v", err)
		}
		return p.count("g/") == 0 && p.count("s/") == 1
	})
	_, err := p.Heartbeat(t.Context(), silent.ID)
	expect(t, "heartbeat of an expired session", err, lock.ErrSessionDead)
}

func TestDeadSessionCreatesNoKey(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	dead := p.open(lock.MaxTTL)
	p.revoke(dead)
	for name, id := range map[string]lock.SessionID{"dead": dead.ID, "unknown": lock.NewSessionID()} {
		for _, lease := range []time.Duration{0, time.Minute} {
			req := request(key(t, "nothing"), id)
			req.Lease = lease
			_, err := p.TryInsert(t.Context(), req)
			expect(t, "acquire by a session that is "+name, err, lock.ErrSessionDead)
		}
	}
	if n := p.count(""); n != 0 {
		t.Errorf("a dead session left %d keys", n)
	}
}

func TestSettleTellsWhoseSessionIsDead(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	alive, dead := p.open(lock.MaxTTL), p.open(lock.MaxTTL)
	req := request(key(t, "gone"), dead.ID)
	p.grabWith(req)
	if _, ok, err := p.Settle(t.Context(), req.Key, alive.ID, req.RequestID); ok || err != nil {
		t.Errorf("settle by a live session that holds nothing: %v, %v", ok, err)
	}
	p.revoke(dead)
	for name, id := range map[string]lock.SessionID{"dead": dead.ID, "unknown": lock.NewSessionID()} {
		_, ok, err := p.Settle(t.Context(), req.Key, id, req.RequestID)
		expect(t, "settle by a session that is "+name, err, lock.ErrSessionDead)
		if ok {
			t.Errorf("settle by a session that is %s found a grant", name)
		}
	}
}

func TestCloseCountsOnceAndOnlyLiveGrants(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	session := p.open(lock.MaxTTL)
	p.grab("bound", session)
	leased, lapsed := request(key(t, "leased"), session.ID), request(key(t, "lapsed"), session.ID)
	leased.Lease, lapsed.Lease = time.Minute, time.Minute
	p.grabWith(leased)
	p.grabWith(lapsed)
	if _, err := p.raw.Delete(t.Context(), p.prefix+"x/default/lapsed"); err != nil {
		t.Fatal(err)
	}
	for i, want := range []int{2, 0, 0} {
		n, err := p.CloseSession(t.Context(), session.ID)
		if err != nil || n != want {
			t.Errorf("close %d: %d, %v, want %d and no error", i+1, n, err, want)
		}
	}
	eventually(t, "the lease of the leased grant is gone too", func() bool { return p.count("") == 0 })
}

func TestUnusedLeasesOfGrantsAreEnded(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	session, other := p.open(lock.MaxTTL), p.open(lock.MaxTTL)
	req := request(key(t, "capped"), session.ID)
	req.Lease = time.Minute
	g := p.grabWith(req)
	first := p.limitLease("capped")
	if _, err := p.Extend(t.Context(), g.Key, session.ID, g.Token, lock.MaxTTL); err != nil {
		t.Fatalf("extend: %v", err)
	}
	second := p.limitLease("capped")
	if first == second {
		t.Fatal("the extension has not moved the end")
	}
	to := request(g.Key, other.ID)
	to.Lease = time.Minute
	next, err := p.Handoff(t.Context(), port.GrantRef{Key: g.Key, Session: session.ID, Token: g.Token}, to)
	if err != nil {
		t.Fatalf("handoff: %v", err)
	}
	third := p.limitLease("capped")
	if ok, err := p.DeleteIfOwner(t.Context(), next.Key, other.ID, next.Token); !ok || err != nil {
		t.Fatalf("release: %v, %v", ok, err)
	}
	for _, id := range []clientv3.LeaseID{first, second, third} {
		eventually(t, "a lease that nobody uses is ended", func() bool {
			resp, err := p.raw.TimeToLive(t.Context(), id)
			return err == nil && resp.TTL == -1
		})
	}
}

// limitLease returns the etcd lease behind the lease of a grant.
func (p *place) limitLease(name string) clientv3.LeaseID {
	p.t.Helper()
	resp, err := p.raw.Get(p.t.Context(), p.prefix+"x/default/"+name)
	if err != nil || len(resp.Kvs) != 1 {
		p.t.Fatalf("find the lease of %s: %v", name, err)
	}
	return clientv3.LeaseID(resp.Kvs[0].GetLease())
}
