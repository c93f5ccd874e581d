package postgres_test

import (
	"testing"

	"github.com/fencelock/fencelock/core/lock"
	"github.com/fencelock/fencelock/core/port"
)

// TestReadShowsWhatStands: nothing that is over, whether or not somebody has found that out, and the floor in any case.
func TestReadShowsWhatStands(t *testing.T) {
	t.Parallel()
	p := idlePlace(t)
	sees := func(what, name string, want *lock.Grant, floor lock.Token) {
		t.Helper()
		info, err := p.Read(t.Context(), key(t, name))
		if err != nil || info.Key != key(t, name) || info.Held != (want != nil) || info.Floor != floor {
			t.Errorf("%s: %+v, %v", what, info, err)
		}
		if want != nil {
			p.same(t, what, *want, info.Grant)
		} else if info.Grant.Token != 0 || !info.Grant.Session.IsZero() {
			t.Errorf("%s: free, and yet %+v", what, info.Grant)
		}
	}
	sees("a key that was never used", "a", nil, 0)
	session := p.open(lock.MaxTTL)
	g := p.grabLeased("a", session)
	sees("a grant", "a", &g, 0)
	p.lapse("a")
	sees("a lapsed grant", "a", nil, 0)
	g = p.grab("a", session)
	r, err := p.Revoke(t.Context(), port.RevokeRequest{Key: g.Key, Operator: "op", Reason: "a reason"})
	if err != nil {
		t.Fatal(err)
	}
	sees("a revoked grant", "a", nil, r.Floor)
	g = p.grab("a", session)
	sees("the grant after it", "a", &g, r.Floor)
	p.expire(session)
	sees("a grant of an expired session", "a", nil, r.Floor)
	dead := p.open(lock.MaxTTL)
	p.grab("b", dead)
	p.kill(dead.ID)
	sees("a grant of a dead session", "b", nil, 0)
	p.exec("DELETE FROM fencelock.lock_session")
	sees("a grant of a session that is gone", "b", nil, 0)
	g = p.grab("c", p.open(lock.MaxTTL))
	sees("another grant", "c", &g, 0)
	if _, err := p.RaiseFloor(t.Context(), port.FloorRequest{Operator: "op", Reason: "a reason"}); err != nil {
		t.Fatal(err)
	}
	sees("a grant below the floor of all tokens", "c", nil, 0)
	if n := one[int](p, "SELECT count(*) FROM fencelock.lock_session WHERE ended_at IS NOT NULL"); n != 0 {
		t.Errorf("%d sessions were ended by looking", n)
	}
}

// TestReadWaitsForNobody who has the row.
func TestReadWaitsForNobody(t *testing.T) {
	t.Parallel()
	p := idlePlace(t)
	session := p.open(lock.MaxTTL)
	g := p.grab("locked", session)
	entry, holder := p.lockKey("locked"), p.lockSession(session)
	if info, err := p.Read(t.Context(), g.Key); err != nil || !info.Held {
		t.Errorf("read: %+v, %v", info, err)
	}
	if list, _, err := p.Grants(t.Context(), lock.DefaultNamespace, "", port.Page{Size: 1}); err != nil || len(list) != 1 {
		t.Errorf("list: %+v, %v", list, err)
	}
	entry.commit()
	holder.commit()
}
