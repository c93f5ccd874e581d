package etcd_test

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/fencelock/fencelock/adapters/etcd"
	"github.com/fencelock/fencelock/core/lock"
	"github.com/fencelock/fencelock/core/port"
	"github.com/fencelock/fencelock/tools/testenv"
)

// TestOneOfManyTakesALapsedGrantOver: all see the same dead grant at once; a put that does not
// compare it would let each of them overwrite the one before.
func TestOneOfManyTakesALapsedGrantOver(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	stores := []*etcd.Store{p.Store, dial(t, testenv.Etcd(t).Endpoints, config(p.prefix))}
	holder := p.open(lock.MaxTTL)
	const takers = 8
	var sessions [takers]lock.Session
	for i := range sessions {
		sessions[i] = p.open(lock.MaxTTL)
	}
	for round := range 10 {
		req := request(key(t, fmt.Sprintf("lapsed/%d", round)), holder.ID)
		req.Lease = time.Minute
		dead := p.grabWith(req)
		if _, err := p.raw.Delete(t.Context(), p.prefix+"x/"+req.Key.String()); err != nil {
			t.Fatal(err)
		}
		var group sync.WaitGroup
		granted := make(chan lock.Grant, takers)
		for i, session := range sessions {
			group.Go(func() {
				a, err := stores[i%2].TryInsert(t.Context(), request(req.Key, session.ID))
				if err != nil {
					t.Errorf("acquire: %v", err)
				}
				if a.Granted {
					granted <- a.Grant
				}
			})
		}
		group.Wait()
		if n := len(granted); n != 1 {
			t.Fatalf("%d sessions took one lapsed grant over, want 1", n)
		}
		if g := <-granted; g.Token <= dead.Token {
			t.Errorf("token %d after %d", g.Token, dead.Token)
		}
		if ok, err := p.DeleteIfOwner(t.Context(), req.Key, holder.ID, dead.Token); ok || err != nil {
			t.Errorf("release by the old holder: %v, %v", ok, err)
		}
	}
}

// TestStoreOfAnOldBaseLearnsTheNewOne: each call is the first that a Store makes since another one has
// raised the floor, and must do what it would have done anywhere else.
func TestStoreOfAnOldBaseLearnsTheNewOne(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	stale := func() *etcd.Store { return dial(t, testenv.Etcd(t).Endpoints, config(p.prefix)) }
	releaser, giver, taker := stale(), stale(), stale()
	session := p.open(lock.MaxTTL)
	raised, err := p.RaiseFloor(t.Context(), port.FloorRequest{Above: 1 << 40, Operator: "op", Reason: "after a restore"})
	if err != nil {
		t.Fatal(err)
	}
	g := p.grab("given", session)
	next, err := giver.Handoff(t.Context(), port.GrantRef{Key: g.Key, Session: session.ID, Token: g.Token}, request(g.Key, session.ID))
	if err != nil || next.Token <= g.Token {
		t.Errorf("handoff: %+v, %v, want a token above %d", next, err, g.Token)
	}
	if ok, err := releaser.DeleteIfOwner(t.Context(), next.Key, session.ID, next.Token); !ok || err != nil {
		t.Errorf("release: %v, %v", ok, err)
	}
	a, err := taker.TryInsert(t.Context(), request(g.Key, session.ID))
	if err != nil || !a.Granted || a.Grant.Token <= raised.Floor {
		t.Errorf("acquire: %+v, %v, want a token above %d", a, err, raised.Floor)
	}
}
