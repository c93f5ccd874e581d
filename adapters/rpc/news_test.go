package rpc_test

import (
	"runtime"
	"testing"

	"connectrpc.com/connect"

	fencelockv1 "github.com/fencelock/fencelock/contracts/api/fencelock/v1"
	"github.com/fencelock/fencelock/core/lock"
)

// TestASessionCostsNoGoroutine: a stream that serves many idle sessions has the goroutines of one that serves one,
// and brings the news of each. Not parallel: it counts the goroutines of the process.
func TestASessionCostsNoGoroutine(t *testing.T) {
	f := newFixture(t)
	c := f.plain(t)
	w := c.attach(t)
	attach := func(id uint64) string {
		session := c.open(t)
		w.send(t, opHeartbeat(id, session))
		if r := next(t, w.results); r.GetHeartbeat() == nil {
			t.Fatalf("heartbeat: %v", r)
		}
		held := w.event(t, func(e *fencelockv1.SessionEvent) bool { return e.GetHeld() != nil })
		if held.GetSessionId() != session {
			t.Fatalf("news of %v", held)
		}
		return session
	}
	attach(0)
	before := runtime.NumGoroutine()
	const n = 300
	sessions := map[string]bool{}
	for i := range uint64(n) {
		sessions[attach(1+i)] = true
	}
	waitFor(t, "no goroutine per session", func() bool { return runtime.NumGoroutine() < before+n/10 })
	for session := range sessions { // all at once: more than a stream can be behind
		id, err := lock.ParseSessionID(session)
		if err != nil {
			t.Fatal(err)
		}
		f.world.KillSession(id)
	}
	for len(sessions) > 0 {
		dead := w.event(t, func(e *fencelockv1.SessionEvent) bool { return e.GetSessionDead() != nil })
		if !sessions[dead.GetSessionId()] {
			t.Fatalf("unexpected or told twice: %v", dead)
		}
		delete(sessions, dead.GetSessionId())
	}
}

// TestAttachTellsNothingOfSessionsItDoesNotKnow: presenting an id in a call that fails brings no news of it.
func TestAttachTellsNothingOfSessionsItDoesNotKnow(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	c := f.plain(t)
	w := c.attach(t)
	holder := c.open(t)
	c.acquire(t, holder, "a", "r1")
	for i := range uint64(20) {
		w.send(t, opHeartbeat(i, lock.NewSessionID().Reveal()), opRelease(100+i, lock.NewSessionID().Reveal(), "a", 1),
			opRelease(200+i, holder, "a", 1000))
	}
	for range 60 {
		next(t, w.results)
	}
	session := c.open(t)
	w.send(t, opHeartbeat(1000, session), opHeartbeat(1001, session))
	next(t, w.results)
	next(t, w.results)
	if e := next(t, w.events); e.GetHeld() == nil || e.GetSessionId() != session {
		t.Errorf("news %v, want what the session holds", e)
	}
	c.acquire(t, session, "b", "r2")
	for _, key := range []string{"a", "b"} {
		if _, err := c.admin.Revoke(t.Context(), connect.NewRequest(&fencelockv1.RevokeRequest{
			Key: key, Operator: "op", Reason: "worker is stuck",
		})); err != nil {
			t.Fatal(err)
		}
	}
	if e := next(t, w.events); e.GetGrantLost() == nil || e.GetSessionId() != session {
		t.Errorf("news %v, want the loss of b and nothing else", e)
	}
}
