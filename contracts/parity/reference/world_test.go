package reference_test

import (
	"context"
	"errors"
	"regexp"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fencelock/fencelock/contracts/parity/reference"
	"github.com/fencelock/fencelock/core/lock"
	"github.com/fencelock/fencelock/core/port"
)

const ttl = 2 * time.Second

func newWorld(t *testing.T) *reference.World {
	t.Helper()
	w := reference.New()
	t.Cleanup(w.Close)
	return w
}

func open(t *testing.T, b port.Backend) lock.SessionID {
	t.Helper()
	s, err := b.Sessions.OpenSession(t.Context(), port.OpenRequest{Owner: "test", TTL: ttl})
	if err != nil {
		t.Fatal(err)
	}
	return s.ID
}

func key(t *testing.T, name string) lock.Key {
	t.Helper()
	k, err := lock.NewKey("", name)
	if err != nil {
		t.Fatal(err)
	}
	return k
}

func grant(t *testing.T, b port.Backend, req port.GrantRequest) lock.Grant {
	t.Helper()
	a, err := b.Locks.TryInsert(t.Context(), req)
	if err != nil || !a.Granted {
		t.Fatalf("try insert: granted %v, error %v", a.Granted, err)
	}
	return a.Grant
}

func TestASessionDiesAtItsTTLAndWakesWaiters(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		b := w.Client().Backend()
		s := open(t, b)
		grant(t, b, port.GrantRequest{Key: key(t, "k"), Session: s, RequestID: "r"})
		wake, feed := b.Waiter.Register(key(t, "k"), 0), b.Feed.Subscribe()
		<-feed.Events() // the initial Resync
		start := time.Now()
		<-wake.Fired()
		if e := <-feed.Events(); e.Kind != port.SessionOver || e.Session != s {
			t.Errorf("event %+v, want the session's end", e)
		}
		if lived := time.Since(start); lived != ttl {
			t.Errorf("lived %v, want %v", lived, ttl)
		}
		if _, err := b.Sessions.Heartbeat(t.Context(), s); !errors.Is(err, lock.ErrSessionDead) {
			t.Errorf("heartbeat: %v, want dead", err)
		}
	})
}

func TestALeaseLapsesWhileItsSessionLives(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newWorld(t).Client().Backend()
		s, err := b.Sessions.OpenSession(t.Context(), port.OpenRequest{Owner: "test", TTL: time.Minute})
		if err != nil {
			t.Fatal(err)
		}
		req := port.GrantRequest{Key: key(t, "k"), Session: s.ID, RequestID: "r", Lease: 2 * time.Second}
		g := grant(t, b, req)
		wake := b.Waiter.Register(g.Key, g.Token)
		time.Sleep(time.Second)
		if g, err = b.Locks.Extend(t.Context(), g.Key, s.ID, g.Token, 0); err != nil || g.LeaseRemaining != g.Lease {
			t.Fatalf("extend: %v remaining, %v", g.LeaseRemaining, err)
		}
		select {
		case <-wake.Fired():
			t.Error("the extension woke")
		default:
		}
		start := time.Now()
		<-wake.Fired()
		if lived := time.Since(start); lived != g.Lease {
			t.Errorf("lived %v, want %v", lived, g.Lease)
		}
	})
}

func TestPauseCarriesOutAndHoldsTheAnswer(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		first, second := w.Client(), w.Client()
		s := open(t, first.Backend())
		resume := first.Pause()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := first.TryInsert(ctx, port.GrantRequest{Key: key(t, "k"), Session: s, RequestID: "r"})
		if !lock.IsAmbiguous(err) || !lock.IsRetryable(err) || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("held answer: %v, want ambiguous and retryable", err)
		}
		if info, err := second.Read(t.Context(), key(t, "k")); err != nil || !info.Held {
			t.Errorf("the call was not carried out: %v", err)
		}
		answered := make(chan error)
		go func() { answered <- first.Ping(t.Context()) }()
		synctest.Wait()
		select {
		case err := <-answered:
			t.Errorf("an answer came through the pause: %v", err)
		default:
		}
		resume()
		if err := <-answered; err != nil {
			t.Errorf("after resume: %v", err)
		}
	})
}

func TestPartitionLosesNewsAndTellsOfItAfterwards(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	first, second := w.Client(), w.Client()
	s := open(t, first.Backend())
	g := grant(t, first.Backend(), port.GrantRequest{Key: key(t, "k"), Session: s, RequestID: "r"})
	wake, feed := first.Register(g.Key, g.Token), first.Subscribe()
	<-feed.Events()
	heal := first.Partition()
	if err := first.Ping(t.Context()); !errors.Is(err, lock.ErrContention) || lock.IsAmbiguous(err) {
		t.Errorf("ping: %v, want a certain contention", err)
	}
	if _, err := second.CloseSession(t.Context(), s); err != nil {
		t.Fatal(err)
	}
	select {
	case <-wake.Fired():
		t.Error("a wake crossed the partition")
	case e := <-feed.Events():
		t.Errorf("event %+v crossed the partition", e)
	default:
	}
	heal()
	<-wake.Fired()
	if e := <-feed.Events(); e.Kind != port.Resync {
		t.Errorf("event %+v, want a resync", e)
	}
}

func TestASlowSubscriberGetsAResyncInsteadOfWhatItMissed(t *testing.T) {
	t.Parallel()
	b := newWorld(t).Client().Backend()
	feed := b.Feed.Subscribe()
	defer feed.Close()
	last := lock.SessionID{}
	for range cap(feed.Events()) + 5 {
		last = open(t, b)
		if _, err := b.Sessions.CloseSession(t.Context(), last); err != nil {
			t.Fatal(err)
		}
	}
	if e := <-feed.Events(); e.Kind != port.Resync {
		t.Errorf("first event %+v, want a resync", e)
	}
	var e port.FeedEvent
	for len(feed.Events()) > 0 {
		e = <-feed.Events()
	}
	if e.Session != last {
		t.Error("what came after the resync is missing")
	}
}

func TestStopEndsSubscriptionsAndWaitingCalls(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		c := w.Client()
		feed := c.Subscribe()
		c.Register(key(t, "k"), 0)
		c.Pause()
		answered := make(chan error)
		go func() { answered <- c.Ping(t.Context()) }()
		synctest.Wait()
		c.Stop()
		if err := <-answered; !lock.IsAmbiguous(err) {
			t.Errorf("held call: %v, want ambiguous", err)
		}
		<-feed.Events() // the initial Resync
		if _, open := <-feed.Events(); open {
			t.Error("the subscription goes on")
		}
		if n := w.Registrations(); n != 0 {
			t.Errorf("%d registrations left", n)
		}
	})
}

func TestListingsPageWithoutRepeatOrGap(t *testing.T) {
	t.Parallel()
	b := newWorld(t).Client().Backend()
	s := open(t, b)
	for _, name := range []string{"p/1", "p/2", "p/3", "q"} {
		grant(t, b, port.GrantRequest{Key: key(t, name), Session: s, RequestID: "r"})
	}
	var names []string
	page := port.Page{Size: 2}
	for {
		grants, next, err := b.Catalog.Grants(t.Context(), lock.DefaultNamespace, "p/", page)
		if err != nil {
			t.Fatal(err)
		}
		for _, g := range grants {
			names = append(names, g.Key.Name())
		}
		if _, _, err := b.Catalog.Sessions(t.Context(), port.Page{Size: 1, Token: next}); next != "" && !errors.Is(err, lock.ErrInvalid) {
			t.Errorf("a token of another listing: %v, want invalid", err)
		}
		if page.Token = next; next == "" {
			break
		}
	}
	if !slices.Equal(names, []string{"p/1", "p/2", "p/3"}) {
		t.Errorf("listed %v", names)
	}
	for _, bad := range []port.Page{{Size: 0}, {Size: port.MaxPageSize + 1}, {Size: 1, Token: "?"}, {Size: 1, Token: "AAAA"}} {
		if _, _, err := b.Catalog.Revocations(t.Context(), "default", bad); !errors.Is(err, lock.ErrInvalid) {
			t.Errorf("page %+v: %v, want invalid", bad, err)
		}
	}
}

func TestRaisingTheFloorEndsAllGrantsAndLiftsTokens(t *testing.T) {
	t.Parallel()
	b := newWorld(t).Client().Backend()
	s := open(t, b)
	req := port.GrantRequest{Key: key(t, "k"), Session: s, RequestID: "r"}
	grant(t, b, req)
	raised, err := b.Custodian.RaiseFloor(t.Context(), port.FloorRequest{Above: 1000, Operator: "op", Reason: "restored"})
	if err != nil || raised.EndedGrants != 1 || raised.Floor < 1000 {
		t.Fatalf("raised %+v, %v", raised, err)
	}
	if g := grant(t, b, req); g.Token <= raised.Floor {
		t.Errorf("token %d is not above the floor %d", g.Token, raised.Floor)
	}
}

func TestMutantsAreNamedAndNumbered(t *testing.T) {
	t.Parallel()
	clause := regexp.MustCompile(`^(SESS|LOCK|REV|WAIT|FAIL)-\d\d$`)
	seen := map[string]bool{}
	for _, m := range reference.Mutants() {
		if m.Name == "" || seen[m.Name] || !clause.MatchString(m.Clause) {
			t.Errorf("mutant %q of clause %q", m.Name, m.Clause)
		}
		seen[m.Name] = true
		reference.New(m).Close()
	}
	if len(seen) < 16 {
		t.Errorf("only %d mutants", len(seen))
	}
}
