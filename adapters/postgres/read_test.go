package postgres_test

import (
	"errors"
	"testing"
	"time"

	"github.com/fencelock/fencelock/core/lock"
	"github.com/fencelock/fencelock/core/port"
	"github.com/fencelock/fencelock/tools/testenv"
)

// TestReadShowsWhatStands: nothing that is over, and the floor in any case.
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
}

// TestWhatReadShowsAsOverIsOver: the estimate of another server, whose answers are slow, is that the grant has time left.
func TestWhatReadShowsAsOverIsOver(t *testing.T) {
	t.Parallel()
	p := idlePlace(t)
	proxy := testenv.NewProxy(t, p.url)
	proxy.Delay(300 * time.Millisecond)
	slow := dialIdle(t, proxy.URL())
	shownAsOver := func(k lock.Key) {
		t.Helper()
		eventually(t, "the grant is shown as over", func() bool {
			info, err := p.Read(t.Context(), k)
			return err == nil && !info.Held
		})
		proxy.Delay(0)
	}
	session := p.open(lock.MaxTTL)
	req := request(key(t, "lapses"), session.ID)
	req.Lease = lock.MinTTL
	lapsing := p.grabWith(req)
	shownAsOver(lapsing.Key)
	if g, err := slow.Extend(t.Context(), lapsing.Key, session.ID, lapsing.Token, time.Minute); !errors.Is(err, lock.ErrLost) {
		t.Errorf("extend of what was shown as over: %+v, %v", g, err)
	}
	mortal := p.open(lock.MinTTL)
	dying := p.grab("dies", mortal)
	shownAsOver(dying.Key)
	if v, err := slow.Heartbeat(t.Context(), mortal.ID); !errors.Is(err, lock.ErrSessionDead) {
		t.Errorf("heartbeat of a session whose grant was shown as over: %+v, %v", v, err)
	}
}

// TestReadShowsWhatCannotBeEnded: somebody has the row that says whether it is over.
func TestReadShowsWhatCannotBeEnded(t *testing.T) {
	t.Parallel()
	p := idlePlace(t)
	session := p.open(lock.MaxTTL)
	held := func(what, name string, g lock.Grant, locked *foreign) {
		t.Helper()
		if info, err := p.Read(t.Context(), key(t, name)); err != nil || !info.Held || info.Grant.Token != g.Token {
			t.Errorf("%s: %+v, %v, want held", what, info, err)
		}
		locked.commit()
		eventually(t, what+" is over", func() bool {
			info, err := p.Read(t.Context(), key(t, name))
			return err == nil && !info.Held
		})
	}
	g := p.grabLeased("lapsed", session)
	p.lapse("lapsed")
	held("a lapsed grant", "lapsed", g, p.lockKey("lapsed"))
	g = p.grab("expired", session)
	p.expire(session)
	held("a grant of an expired session", "expired", g, p.lockSession(session))
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
