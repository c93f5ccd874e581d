package rpc_test

import (
	"math"
	"testing"

	"connectrpc.com/connect"

	fencelockv1 "github.com/fencelock/fencelock/contracts/api/fencelock/v1"
)

// TestAnswersThatAreNotErrors are the inputs that a caller may find odd and that have an answer all the same. Each
// leaves the grant that stands alone.
func TestAnswersThatAreNotErrors(t *testing.T) {
	t.Parallel()
	for _, p := range protocols() {
		t.Run(p.name, func(t *testing.T) {
			t.Parallel()
			f := newFixture(t)
			c := f.client(t, p)
			holder, other := c.open(t), c.open(t)
			old := c.acquire(t, holder, heldKey, "r0").GetToken()
			c.release(t, holder, heldKey, old)
			token := c.acquire(t, holder, heldKey, "r1").GetToken()
			if token <= old {
				t.Fatalf("token %d after %d", token, old)
			}
			before := f.snapshot(t)
			t.Run("row 18 to 20 release that does not match is false", func(t *testing.T) {
				c.wantNotReleased(t, holder, old, token+1, math.MaxInt64)
				c.wantNotReleased(t, other, old, token, math.MaxInt64)
			})
			t.Run("row 21 the holder does not re-enter", func(t *testing.T) { c.wantHeld(t, holder, "r2", token) })
			t.Run("row 24 held by another is an outcome", func(t *testing.T) { c.wantHeld(t, other, "r1", token) })
			t.Run("the same request again is the same grant", func(t *testing.T) {
				if again := c.acquire(t, holder, heldKey, "r1"); again.GetToken() != token || again.GetRequestId() != "r1" {
					t.Errorf("grant %v, want token %d under r1", again, token)
				}
			})
			t.Run("abandon of a request that has no grant", func(t *testing.T) {
				answer, err := c.locks.Abandon(t.Context(), connect.NewRequest(&fencelockv1.AbandonRequest{
					Key: heldKey, SessionId: holder, RequestId: "r9",
				}))
				if err != nil || answer.Msg.GetWithdrawn() {
					t.Errorf("abandon: %v, %v; want false", answer, err)
				}
			})
			if after := f.snapshot(t); after != before {
				t.Errorf("the store changed:\n%s\n%s", before, after)
			}
		})
	}
}

func (a api) wantNotReleased(t *testing.T, session string, tokens ...int64) {
	t.Helper()
	for _, token := range tokens {
		answer, err := a.locks.Release(t.Context(), connect.NewRequest(&fencelockv1.ReleaseRequest{
			Key: heldKey, SessionId: session, Token: token,
		}))
		if err != nil || answer.Msg.GetReleased() {
			t.Errorf("release with token %d: %v, %v; want false", token, answer, err)
		}
	}
}

func (a api) wantHeld(t *testing.T, session, request string, token int64) {
	t.Helper()
	answer, err := a.locks.Acquire(t.Context(), connect.NewRequest(&fencelockv1.AcquireRequest{
		Key: heldKey, SessionId: session, RequestId: request,
	}))
	if err != nil {
		t.Fatal(err)
	}
	held := answer.Msg.GetHeld()
	if held.GetToken() != token || held.GetOwner() != "tester" || held.GetAcquiredAt() == nil {
		t.Errorf("outcome %v, want held under token %d by tester since some time", answer.Msg, token)
	}
}

func TestOthersSeeNeitherSessionNorRequestIDs(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	c := f.plain(t)
	holder, other := c.open(t), c.open(t)
	token := c.acquire(t, holder, heldKey, "secret-request").GetToken()
	inspected, err := c.locks.Inspect(t.Context(), connect.NewRequest(&fencelockv1.InspectRequest{Key: heldKey}))
	if err != nil {
		t.Fatal(err)
	}
	listed, err := c.locks.ListLocks(t.Context(), connect.NewRequest(&fencelockv1.ListLocksRequest{}))
	if err != nil {
		t.Fatal(err)
	}
	sessions, err := c.admin.ListSessions(t.Context(), connect.NewRequest(&fencelockv1.ListSessionsRequest{}))
	if err != nil {
		t.Fatal(err)
	}
	held, err := c.locks.Acquire(t.Context(), connect.NewRequest(&fencelockv1.AcquireRequest{Key: heldKey, SessionId: other, RequestId: "r"}))
	if err != nil {
		t.Fatal(err)
	}
	revoked, err := c.admin.Revoke(t.Context(), connect.NewRequest(&fencelockv1.RevokeRequest{
		Key: heldKey, Operator: "op", Reason: "worker is stuck", ExpectedToken: token,
	}))
	if err != nil {
		t.Fatal(err)
	}
	revocations, err := c.admin.ListRevocations(t.Context(), connect.NewRequest(&fencelockv1.ListRevocationsRequest{}))
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{
		"inspect": inspected.Msg.String(), "list of locks": listed.Msg.String(), "list of sessions": sessions.Msg.String(),
		"held": held.Msg.String(), "revocation": revoked.Msg.String(), "list of revocations": revocations.Msg.String(),
	} {
		for _, secret := range []string{holder, "secret-request"} {
			if contains(text, secret) {
				t.Errorf("%s shows %s: %s", name, secret, text)
			}
		}
		if hash := inspected.Msg.GetGrant().GetSessionHash(); hash == "" || !contains(text, hash) {
			t.Errorf("%s does not show the hash %q: %s", name, hash, text)
		}
	}
}

// TestARaisedFloorCanBeReadBack: the record names no key, and every namespace lists it.
func TestARaisedFloorCanBeReadBack(t *testing.T) {
	t.Parallel()
	c := newFixture(t).plain(t)
	raised, err := c.admin.RaiseTokenFloor(t.Context(), connect.NewRequest(&fencelockv1.RaiseTokenFloorRequest{
		Above: 1000, Operator: "op", Reason: "after a restore",
	}))
	if err != nil {
		t.Fatal(err)
	}
	for _, namespace := range []string{"", "elsewhere"} {
		listed, err := c.admin.ListRevocations(t.Context(), connect.NewRequest(&fencelockv1.ListRevocationsRequest{Namespace: namespace}))
		if err != nil {
			t.Fatal(err)
		}
		list := listed.Msg.GetRevocations()
		if len(list) != 1 || list[0].GetReason() != "after a restore" || list[0].GetKey() != "" || list[0].GetNamespace() != "" ||
			list[0].GetFloor() != raised.Msg.GetFloor() {
			t.Errorf("namespace %q lists %v, want the floor of %v", namespace, list, raised.Msg)
		}
	}
}
