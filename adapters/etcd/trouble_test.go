package etcd_test

import (
	"context"
	"slices"
	"sync/atomic"
	"testing"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/fencelock/fencelock/adapters/etcd"
	"github.com/fencelock/fencelock/core/feed"
	"github.com/fencelock/fencelock/core/lock"
	"github.com/fencelock/fencelock/core/port"
	"github.com/fencelock/fencelock/tools/testenv"
)

// refused expects an error that is retryable and says that nothing was carried out.
func refused(t *testing.T, what string, err error) {
	t.Helper()
	if lock.CodeOf(err) != lock.CodeContention || lock.IsAmbiguous(err) {
		t.Errorf("%s: got %v (ambiguous %v), want a retryable refusal", what, err, lock.IsAmbiguous(err))
	}
}

func TestFullStoreStillReleases(t *testing.T) {
	t.Parallel()
	server, prefix := testenv.StartEtcd(t), freshPrefix()
	p := &place{
		Store: dial(t, server.Endpoints, config(prefix)), t: t, raw: raw(t, server.Endpoints), prefix: prefix,
	}
	session, other := p.open(lock.MaxTTL), p.open(lock.MaxTTL)
	released, abandoned := p.grab("released", session), request(key(t, "abandoned"), session.ID)
	p.grabWith(abandoned)
	kept := p.grab("kept", session)
	alarm := &pb.AlarmRequest{Action: pb.AlarmRequest_ACTIVATE, Alarm: pb.AlarmType_NOSPACE}
	if _, err := pb.NewMaintenanceClient(p.raw.ActiveConnection()).Alarm(t.Context(), alarm); err != nil {
		t.Fatalf("raise the alarm: %v", err)
	}

	_, err := p.TryInsert(t.Context(), request(key(t, "new"), session.ID))
	refused(t, "acquire", err)
	_, err = p.Handoff(t.Context(), port.GrantRef{Key: kept.Key, Session: kept.Session, Token: kept.Token}, request(kept.Key, other.ID))
	refused(t, "handoff", err)
	_, err = p.Revoke(t.Context(), port.RevokeRequest{Key: kept.Key, Operator: "op", Reason: "full store"})
	refused(t, "revoke", err)
	_, err = p.OpenSession(t.Context(), port.OpenRequest{Owner: "late", TTL: lock.MinTTL})
	refused(t, "open session", err)
	refused(t, "ping", p.Ping(t.Context()))

	if _, err := p.Heartbeat(t.Context(), session.ID); err != nil {
		t.Errorf("heartbeat: %v", err)
	}
	if _, err := p.Extend(t.Context(), kept.Key, kept.Session, kept.Token, 0); err != nil {
		t.Errorf("extend: %v", err)
	}
	p.release(released)
	if ok, err := p.Abandon(t.Context(), abandoned.Key, abandoned.Session, abandoned.RequestID); !ok || err != nil {
		t.Errorf("abandon: %v, %v", ok, err)
	}
	if n, err := p.CloseSession(t.Context(), session.ID); n != 1 || err != nil {
		t.Errorf("close: %d, %v, want 1 grant", n, err)
	}

	alarm.Action = pb.AlarmRequest_DEACTIVATE
	if _, err := pb.NewMaintenanceClient(p.raw.ActiveConnection()).Alarm(t.Context(), alarm); err != nil {
		t.Fatalf("end the alarm: %v", err)
	}
	p.grab("new", other)
}

// TestExpiredSignInIsRenewed: etcd forgets its sign-in tokens when it restarts, as it does when
// they expire; the role reaches no further than the prefix.
func TestExpiredSignInIsRenewed(t *testing.T) {
	t.Parallel()
	server, prefix := testenv.StartEtcd(t), freshPrefix()
	admin := raw(t, server.Endpoints)
	ctx := t.Context()
	for _, step := range []func() error{
		func() error { _, err := admin.UserAdd(ctx, "root", "secret"); return err },
		func() error { _, err := admin.UserGrantRole(ctx, "root", "root"); return err },
		func() error { _, err := admin.RoleAdd(ctx, "locks"); return err },
		func() error {
			end, all := clientv3.GetPrefixRangeEnd(prefix), clientv3.PermissionType(clientv3.PermReadWrite)
			_, err := admin.RoleGrantPermission(ctx, "locks", prefix, end, all)
			return err
		},
		func() error { _, err := admin.UserAdd(ctx, "server", "secret"); return err },
		func() error { _, err := admin.UserGrantRole(ctx, "server", "locks"); return err },
		func() error { _, err := admin.AuthEnable(ctx); return err },
	} {
		if err := step(); err != nil {
			t.Fatalf("set up sign-in: %v", err)
		}
	}
	access := etcd.Access{Endpoints: server.Endpoints, Username: "server", Password: "secret"}
	store, err := etcd.Dial(ctx, access, config(prefix))
	if err != nil {
		t.Fatalf("dial: %v", err)
	}
	t.Cleanup(func() { _ = store.Close() })
	p := &place{Store: store, t: t, prefix: prefix}
	session := p.open(lock.MaxTTL)
	p.grab("before", session)
	server.Restart()
	eventually(t, "service returns after the restart", func() bool {
		a, err := p.TryInsert(ctx, request(key(t, "after"), session.ID))
		if err != nil && !lock.IsRetryable(err) {
			t.Fatalf("acquire: %v", err)
		}
		return err == nil && (a.Granted || a.Holder.Session == session.ID)
	})
	if _, err := p.Heartbeat(ctx, session.ID); err != nil {
		t.Errorf("heartbeat: %v", err)
	}
	if list, err := p.LocksOf(ctx, session.ID); err != nil || len(list) != 2 {
		t.Errorf("locks of the session: %d, %v", len(list), err)
	}
	access.Password = "wrong"
	if store, err := etcd.Dial(ctx, access, config(prefix)); err == nil {
		_ = store.Close()
		t.Error("a wrong password was accepted")
	}
}

// TestDeposedLeadersListIsNotBelieved: a leader of an older term answers with a list of keys from
// the past; the list that counts is that of the term that a linearizable read confirms.
func TestDeposedLeadersListIsNotBelieved(t *testing.T) {
	t.Parallel()
	var asked atomic.Int64
	l := &leases{ttl: func(resp *pb.LeaseTimeToLiveResponse) {
		if asked.Add(1) == 1 {
			resp.Keys, resp.Header.RaftTerm = nil, resp.GetHeader().GetRaftTerm()-1
		}
	}}
	p := newMeddled(t, l, nil)
	session := p.open(lock.MaxTTL)
	p.grab("a", session)
	p.grab("b", session)
	list, err := p.LocksOf(t.Context(), session.ID)
	if err != nil || len(list) != 2 || asked.Load() != 2 {
		t.Errorf("%d locks after %d questions, %v; want 2 after a second question", len(list), asked.Load(), err)
	}
}

func TestSubscriberThatFallsBehindIsTold(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	sub := p.Subscribe()
	defer sub.Close()
	if ev := <-sub.Events(); ev.Kind != port.Resync {
		t.Fatalf("the first event is %+v, want a Resync", ev)
	}
	sessions := make([]lock.Session, feed.Backlog+10)
	for i := range sessions {
		sessions[i] = p.open(lock.MaxTTL)
	}
	seen := p.Subscribe() // keeps up, and shows when all has been told
	defer seen.Close()
	for _, session := range sessions {
		p.revoke(session)
		for ev := range seen.Events() {
			if ev.Kind == port.SessionOver {
				break
			}
		}
	}
	var kinds []port.FeedKind
	for len(sub.Events()) > 0 {
		kinds = append(kinds, (<-sub.Events()).Kind)
	}
	if len(kinds) != feed.Backlog || kinds[len(kinds)-1] != port.Resync || slices.Index(kinds, port.Resync) != len(kinds)-1 {
		t.Errorf("%d events, the last is %v, want a Resync at the end", len(kinds), kinds[len(kinds)-1])
	}
	p.revoke(p.open(lock.MaxTTL))
	if ev := <-sub.Events(); ev.Kind != port.SessionOver {
		t.Errorf("after the Resync came %+v, want the next event", ev)
	}
}

func TestFeedTellsALapseFromARelease(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	session := p.open(lock.MaxTTL)
	sub := p.Subscribe()
	defer sub.Close()
	<-sub.Events()
	req := request(key(t, "released"), session.ID)
	req.Lease = lock.MaxTTL
	p.release(p.grabWith(req))
	var want []lock.Grant
	for _, name := range []string{"lapsed", "extended"} {
		req := request(key(t, name), session.ID)
		req.Lease = lock.MinTTL
		g := p.grabWith(req)
		if name == "extended" {
			if _, err := p.Extend(t.Context(), g.Key, session.ID, g.Token, 2*lock.MinTTL); err != nil {
				t.Fatalf("extend: %v", err)
			}
		}
		want = append(want, g)
	}
	for _, g := range want {
		ev := <-sub.Events()
		if ev.Kind != port.GrantLapsed || ev.Key != g.Key || ev.Token != g.Token || !ev.Session.Equal(session.ID) {
			t.Errorf("got %+v, want that %s token %d lapsed", ev, g.Key, g.Token)
		}
	}
}

func TestCloseEndsEverything(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	session := p.open(lock.MaxTTL)
	sub, wake := p.Subscribe(), p.Register(key(t, "a"), 0)
	<-sub.Events()
	<-wake.Fired()
	if _, err := p.Heartbeat(t.Context(), session.ID); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := p.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	}
	for range sub.Events() {
	}
	sub.Close()
	wake.Cancel()
	if _, open := <-p.Subscribe().Events(); open {
		t.Error("a subscription of a closed Store gave an event")
	}
	p.Register(key(t, "a"), 0).Cancel()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	_, err := p.TryInsert(ctx, request(key(t, "a"), session.ID))
	expect(t, "acquire of a closed Store", err, lock.ErrContention)
	if n := p.count("s/"); n != 1 {
		t.Errorf("closing the Store ended its sessions: %d are left, want 1", n)
	}
}
