package postgres_test

import (
	"testing"
	"time"

	"github.com/fencelock/fencelock/adapters/postgres"
	"github.com/fencelock/fencelock/core/lock"
	"github.com/fencelock/fencelock/core/port"
	"github.com/fencelock/fencelock/tools/testenv"
)

// subscribe returns a subscription to the Store that is in place.
func subscribe(t *testing.T, store *postgres.Store) port.Subscription {
	t.Helper()
	sub := store.Subscribe()
	t.Cleanup(sub.Close)
	if ev := next(t, sub); ev.Kind != port.Resync {
		t.Fatalf("the first event is %+v, want a resync", ev)
	}
	return sub
}

// next is the next event.
func next(t *testing.T, sub port.Subscription) port.FeedEvent {
	t.Helper()
	select {
	case ev, open := <-sub.Events():
		if !open {
			t.Fatal("the feed has ended")
		}
		return ev
	case <-time.After(patience):
		t.Fatalf("no event within %v", patience)
	}
	return port.FeedEvent{}
}

// brings expects an event.
func brings(t *testing.T, what string, sub port.Subscription, want port.FeedEvent) {
	t.Helper()
	if ev := next(t, sub); ev != want {
		t.Errorf("%s: told of %+v, want %+v", what, ev, want)
	}
}

// TestFeedTellsEveryStore: whoever did it, each Store tells, once, and nothing else.
func TestFeedTellsEveryStore(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	for _, store := range []*postgres.Store{p.Store, p.another()} {
		p.settled(t, store) // what is told of the other round comes before
		sub := subscribe(t, store)
		session, other := p.open(lock.MaxTTL), p.open(lock.MaxTTL)
		over := func(s lock.Session) port.FeedEvent {
			return port.FeedEvent{Kind: port.SessionOver, Session: s.ID}
		}
		ended := func(kind port.FeedKind, g lock.Grant) port.FeedEvent {
			return port.FeedEvent{Kind: kind, Key: g.Key, Session: g.Session, Token: g.Token}
		}
		leased := func() lock.Grant {
			req := request(key(t, "leased"), session.ID)
			req.Lease = time.Minute
			return p.grabWith(req)
		}
		revoke := port.RevokeRequest{Key: key(t, "revoked"), Operator: "op", Reason: "a reason"}

		g := p.grab("revoked", session)
		if _, err := p.Revoke(t.Context(), revoke); err != nil {
			t.Fatal(err)
		}
		brings(t, "a revocation", sub, ended(port.GrantRevoked, g))

		g = leased()
		p.lapse("leased")
		brings(t, "a lapse that was found by tidying", sub, ended(port.GrantLapsed, g))

		g = leased()
		p.lapse("leased")
		next := p.grab("leased", other) // at once, before anybody tidies
		brings(t, "a lapse that was found by the next one", sub, ended(port.GrantLapsed, g))
		p.release(next)

		closed, killed, expired := p.open(lock.MaxTTL), p.open(lock.MaxTTL), p.open(lock.MaxTTL)
		p.grab("held", closed)
		if _, err := p.CloseSession(t.Context(), closed.ID); err != nil {
			t.Fatal(err)
		}
		brings(t, "the end of a session", sub, over(closed))
		p.kill(killed.ID)
		brings(t, "a death by hand", sub, over(killed))
		p.expire(expired)
		brings(t, "a death by expiry", sub, over(expired))

		if _, err := p.RaiseFloor(t.Context(), port.FloorRequest{Operator: "op", Reason: "a reason"}); err != nil {
			t.Fatal(err)
		}
		brings(t, "a raised floor", sub, port.FeedEvent{Kind: port.Resync})
		p.exec("DELETE FROM fencelock.lock_session WHERE secret = $1::uuid", other.ID.Reveal())
		brings(t, "the death of who knows whom", sub, port.FeedEvent{Kind: port.Resync})
	}
}

// TestFeedThatCannotAskTellsToLook: the listener hears of a death, and the database cannot be asked whose it was.
func TestFeedThatCannotAskTellsToLook(t *testing.T) {
	t.Parallel()
	url := testenv.Postgres(t).Database(t)
	proxy := testenv.NewProxy(t, address(t, url))
	p := placeAt(t, postgres.Access{URL: url}, config())
	cutOff := dial(t, postgres.Access{URL: through(t, url, proxy), ListenURL: url}, config())
	holder := p.open(lock.MaxTTL)
	g := p.grab("held", holder)
	sub := subscribe(t, cutOff)
	w := wait(t, cutOff, g.Key, p.open(lock.MaxTTL))
	p.caughtUp(t, cutOff)
	drained(w)
	proxy.Cut()
	p.exec("SELECT pg_notify('fencelock', '{\"kind\":\"session_over\",\"session\":999}')")
	brings(t, "a death that cannot be looked up", sub, port.FeedEvent{Kind: port.Resync})
	fires(t, "a death that cannot be looked up", w)
}

// TestFeedTellsInOrder also where there is more at once than one question takes.
func TestFeedTellsInOrder(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	sub := subscribe(t, p.Store)
	const sessions = 200
	var want []lock.SessionID
	tx := p.begin("SELECT")
	for range sessions {
		s := p.open(lock.MaxTTL)
		want = append(want, s.ID)
		tx.exec("UPDATE fencelock.lock_session SET ended_at = clock_timestamp() WHERE secret = $1::uuid", s.ID.Reveal())
	}
	tx.commit()
	for i, id := range want {
		if ev := next(t, sub); ev.Kind != port.SessionOver || !ev.Session.Equal(id) {
			t.Fatalf("event %d is %+v, want the end of session %v", i, ev, id)
		}
	}
}
