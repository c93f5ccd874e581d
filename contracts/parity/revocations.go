package parity

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/fencelock/fencelock/core/lock"
	"github.com/fencelock/fencelock/core/port"
	"github.com/fencelock/fencelock/core/service"
)

func revokeAdvancesFloor(s *stage) {
	holder, heir := s.open(s.First, longTTL), s.open(s.Second, longTTL)
	for i, lease := range []time.Duration{0, time.Minute} {
		req := s.request(s.key(fmt.Sprintf("floor/%d", i)), holder)
		req.Lease = lease
		g := s.grab(s.First, req)
		r := must[lock.Revocation](s, "revoke")(s.revoke(s.Second, g.Key, 0))
		if r.Key != g.Key || r.PreviousToken != g.Token || r.PreviousSession != g.Session || r.PreviousOwner != holder.Owner {
			s.Errorf("revocation says %+v, want what it ended: %+v", r, g)
		}
		if r.ID == "" || r.Operator != "operator" || r.Reason != "parity suite" || r.At.IsZero() {
			s.Errorf("revocation says %+v, want id, operator, reason and time", r)
		}
		s.higher("revocation (the floor)", g.Token, r.Floor)
		if info := s.read(s.First, g.Key); info.Held || info.Floor != r.Floor {
			s.Errorf("after a revocation the key is held: %v, floor %d, want free and %d", info.Held, info.Floor, r.Floor)
		}
		s.recorded(r)
		next := s.hold(s.First, g.Key, heir)
		s.higher("revocation (the floor)", r.Floor, next.Token)
		s.release(s.First, next)
		s.higher("a later release", next.Token, s.hold(s.Second, g.Key, holder).Token)
		if info := s.read(s.First, g.Key); info.Floor != r.Floor {
			s.Errorf("the floor has become %d, want %d", info.Floor, r.Floor)
		}
	}
}

// recorded fails the case unless the newest audit record is r, seen from both clients.
func (s *stage) recorded(r lock.Revocation) {
	s.Helper()
	for _, b := range []port.Backend{s.First, s.Second} {
		list := s.revocations(b)
		if len(list) == 0 || list[0].ID != r.ID || list[0].Floor != r.Floor || list[0].PreviousToken != r.PreviousToken ||
			list[0].Operator != r.Operator || list[0].Reason != r.Reason || list[0].Key != r.Key {
			s.Errorf("the newest of %d audit records is not %+v", len(list), r)
		}
	}
}

func revokeAtOnce(s *stage) {
	holder := s.open(s.First, longTTL)
	before := 0
	for round := range 4 {
		g := s.hold(s.First, s.key(fmt.Sprintf("crowd/%d", round)), holder)
		n, complete := s.truths(6, func(_ int, b port.Backend) (bool, error) { return revokeOnce(s.Context(), b, g.Key, g.Token) })
		if n > 1 || n == 0 && complete {
			s.Errorf("%d of 6 revocations of one grant succeeded, want 1", n)
		}
		// One whose answer was lost has left a record, or has not.
		records := len(s.revocations(s.Second)) - before
		if records > 1 || records < n {
			s.Errorf("%d audit records of %d revocations that succeeded", records, n)
		}
		before += records
	}
}

// revokeOnce reports whether this very call revoked the grant.
func revokeOnce(ctx context.Context, b port.Backend, key lock.Key, expected lock.Token) (bool, error) {
	_, err := b.Locks.Revoke(ctx, port.RevokeRequest{Key: key, Operator: "operator", Reason: "parity suite", Expected: expected})
	if lock.CodeOf(err) == lock.CodeLost {
		return false, nil
	}
	return err == nil, err
}

func revokeRacesRelease(s *stage) {
	holder := s.open(s.First, longTTL)
	for round := range 8 {
		g := s.hold(s.First, s.key(fmt.Sprintf("race/%d", round)), holder)
		before := len(s.revocations(s.First))
		n, complete := s.truths(2, func(i int, b port.Backend) (bool, error) {
			if i == 0 {
				return b.Locks.DeleteIfOwner(s.Context(), g.Key, g.Session, g.Token)
			}
			return revokeOnce(s.Context(), b, g.Key, 0)
		})
		if n > 1 || n == 0 && complete {
			s.Errorf("%d of a release and a revocation at once succeeded, want 1", n)
		}
		info, records := s.read(s.First, g.Key), len(s.revocations(s.First))-before
		// Where no answer says that one succeeded, both may have failed.
		if info.Held && n+records > 0 || (info.Floor > 0) != (records == 1) || records > 1 {
			s.Errorf("held %v, floor %d, %d new records: want free, and a floor if and only if there is a record", info.Held, info.Floor, records)
		}
	}
}

func revokeOtherToken(s *stage) {
	holder := s.open(s.First, longTTL)
	old := s.hold(s.First, s.key("compare"), holder)
	s.release(s.First, old)
	g := s.hold(s.First, old.Key, holder)
	for _, expected := range []lock.Token{old.Token, g.Token + 1} {
		_, err := s.revoke(s.Second, g.Key, expected)
		s.expect("revocation of another token", err, lock.ErrLost)
		s.holds(s.First, g)
	}
	s.nothingRevoked(g.Key)
	must[lock.Revocation](s, "revoke the expected token")(s.revoke(s.First, g.Key, g.Token))
	s.holdsNothing(s.Second, holder)
}

// nothingRevoked fails the case if a refused revocation left something.
func (s *stage) nothingRevoked(key lock.Key) {
	s.Helper()
	if n, floor := len(s.revocations(s.Second)), s.read(s.Second, key).Floor; n != 0 || floor != 0 {
		s.Errorf("a refused revocation left %d records and floor %d", n, floor)
	}
}

func revokeFreeKey(s *stage) {
	never, released := s.key("never"), s.key("released")
	s.release(s.First, s.hold(s.First, released, s.open(s.First, longTTL)))
	for _, key := range []lock.Key{never, released} {
		for _, b := range []port.Backend{s.First, s.Second} {
			_, err := s.revoke(b, key, 0)
			s.expect("revocation of a free key", err, lock.ErrLost)
		}
		s.nothingRevoked(key)
	}
}

func deposedHolder(s *stage) {
	holder, heir := s.open(s.First, longTTL), s.open(s.Second, longTTL)
	g := s.hold(s.First, s.key("deposed"), holder)
	must[lock.Revocation](s, "revoke")(s.revoke(s.Second, g.Key, 0))
	s.deposed(g)
	next := s.hold(s.Second, g.Key, heir)
	s.deposed(g)
	s.refuses(next, g.Key, g.Session, g.Token)
	s.heartbeat(s.First, holder)
}

func (s *stage) deposed(g lock.Grant) {
	s.Helper()
	s.lost(g)
	if s.end(s.First, g.Key, g.Session, g.Token) {
		s.Errorf("release by the deposed holder: true, want false")
	}
	if list := must[[]lock.Grant](s, "locks of session")(held(s.Context(), s.First, g.Session)); len(list) != 0 {
		s.Errorf("the deposed holder is said to hold tokens %v", tokens(list))
	}
}

func feedTells(s *stage) {
	holder := s.open(s.First, longTTL)
	feeds := []port.Subscription{s.subscribe(s.First), s.subscribe(s.Second)}
	told := []int{0, 0}
	s.eventually("both feeds tell of two revocations", func() bool {
		g := s.hold(s.First, s.key("told"), holder)
		must[lock.Revocation](s, "revoke")(s.revoke(s.First, g.Key, 0))
		for i, feed := range feeds {
			if s.told(feed, g) {
				told[i]++
			}
		}
		return min(told[0], told[1]) >= 2
	})
}

// subscribe returns a subscription that is in place.
func (s *stage) subscribe(b port.Backend) port.Subscription {
	s.Helper()
	feed := b.Feed.Subscribe()
	s.Cleanup(feed.Close)
	if e := s.next(feed); e.Kind != port.Resync {
		s.Errorf("a subscription begins with %+v, want a resync", e)
	}
	return feed
}

// next is the next event of a feed.
func (s *stage) next(feed port.Subscription) port.FeedEvent {
	s.Helper()
	ctx, cancel := context.WithTimeout(s.Context(), patience)
	defer cancel()
	select {
	case e, open := <-feed.Events():
		if !open {
			s.Fatalf("the feed has ended")
		}
		return e
	case <-ctx.Done():
		s.Fatalf("the feed brought nothing within %v", patience)
	}
	return port.FeedEvent{}
}

// told waits for the news that g was revoked. It returns false if the feed began anew instead: then the news may be lost, and
// whoever wants to hear some has to try again.
func (s *stage) told(feed port.Subscription, g lock.Grant) bool {
	s.Helper()
	for {
		e := s.next(feed)
		if e.Kind == port.GrantRevoked && e.Key == g.Key && e.Token == g.Token {
			return true
		}
		if e.Kind == port.Resync {
			return false
		}
		if e.Kind == port.SessionOver && e.Session == g.Session || e.Kind == port.GrantLapsed && e.Key == g.Key && e.Token == g.Token {
			s.Fatalf("the feed brought %+v, want the revocation of token %d", e, g.Token)
		}
	}
}

// watcherIsTold: whoever watches a session at a server learns of each loss, or
// is given the list of what is left. The list that may come when a watch begins tells of
// one loss at most.
func watcherIsTold(s *stage) {
	holder := s.open(s.First, longTTL)
	for i, b := range []port.Backend{s.First, s.Second} {
		events, cancel := s.serve(b).WatchSession(holder.ID)
		defer cancel()
		for round := range 3 {
			g := s.hold(s.First, s.key(fmt.Sprintf("watched/%d/%d", i, round)), holder)
			must[lock.Revocation](s, "revoke")(s.revoke(s.First, g.Key, 0))
			s.toldOfLoss(events, g)
		}
	}
}

// toldOfLoss waits until a watcher knows that g is lost.
func (s *stage) toldOfLoss(events <-chan service.SessionEvent, g lock.Grant) {
	s.Helper()
	for {
		select {
		case e := <-events:
			gone := e.Kind == service.HeldNow && !slices.Contains(tokens(e.Held), g.Token)
			if gone || e.Kind == service.GrantLost && e.Key == g.Key && e.Token == g.Token && e.Reason == port.GrantRevoked {
				return
			}
		case <-time.After(patience):
			s.Fatalf("the watcher was told nothing within %v", patience)
		case <-s.Context().Done():
			s.Fatalf("the case was ended: %v", context.Cause(s.Context()))
		}
	}
}

// revokeMany revokes one grant after another and returns the records, newest first.
func (s *stage) revokeMany(n int) []lock.Revocation {
	s.Helper()
	holder := s.open(s.First, longTTL)
	list := make([]lock.Revocation, n)
	for i := range n {
		b := []port.Backend{s.First, s.Second}[i%2]
		g := s.hold(b, s.key(fmt.Sprintf("many/%d", i%3)), holder)
		list[n-1-i] = must[lock.Revocation](s, "revoke")(s.revoke(b, g.Key, 0))
	}
	return list
}

func revocationPages(s *stage) {
	want := s.revokeMany(7)
	page := func(b port.Backend, token string) ([]lock.Revocation, string) {
		s.Helper()
		list, next, err := b.Catalog.Revocations(s.Context(), lock.DefaultNamespace, port.Page{Size: 3, Token: token})
		if err != nil {
			s.Fatalf("list revocations: %v", err)
		}
		return list, next
	}
	var got []lock.Revocation
	token := ""
	for i, size := range []int{3, 3, 1} {
		list, next := page([]port.Backend{s.First, s.Second}[i%2], token)
		if len(list) != size || (next == "") != (size == 1) {
			s.Fatalf("page %d has %d records and next %q, want %d", i, len(list), next, size)
		}
		got, token = append(got, list...), next
		if i == 0 {
			s.revokeMany(1) // newer than the paging: neither repeats nor hides what it lists
		}
	}
	for i := range want {
		if got[i].ID != want[i].ID || (i > 0 && got[i].ID >= got[i-1].ID) {
			s.Errorf("record %d is %s, want %s, newest first", i, got[i].ID, want[i].ID)
		}
	}
	elsewhere, _, err := s.First.Catalog.Revocations(s.Context(), "elsewhere", port.Page{Size: 3})
	if err != nil || len(elsewhere) != 0 {
		s.Errorf("another namespace lists %d revocations, %v", len(elsewhere), err)
	}
}

func foreignPageToken(s *stage) {
	s.revokeMany(3)
	_, next, err := s.First.Catalog.Revocations(s.Context(), lock.DefaultNamespace, port.Page{Size: 1})
	if err != nil || next == "" {
		s.Fatalf("first page: next %q, %v", next, err)
	}
	_, _, err = s.First.Catalog.Revocations(s.Context(), lock.DefaultNamespace, port.Page{Size: 1, Token: "no token"})
	s.expect("a page token that is none", err, lock.ErrInvalid)
	_, _, err = s.First.Catalog.Sessions(s.Context(), port.Page{Size: 1, Token: next})
	s.expect("a page token of another listing", err, lock.ErrInvalid)
	_, _, err = s.First.Catalog.Revocations(s.Context(), "elsewhere", port.Page{Size: 1, Token: next})
	s.expect("a page token of another namespace", err, lock.ErrInvalid)
}

func revocationsSurvive(s *stage) {
	want := s.revokeMany(2)
	for _, r := range want {
		s.close(s.First, r.PreviousSession)
	}
	s.Stop(s)
	got := s.revocations(s.Second)
	if len(got) != 2 || got[0].ID != want[0].ID || got[1].ID != want[1].ID {
		s.Errorf("%d records are left, want 2", len(got))
	}
	if floor := s.read(s.Second, want[0].Key).Floor; floor != want[0].Floor {
		s.Errorf("floor %d, want %d", floor, want[0].Floor)
	}
}

// raisedFloorIsListed raises the floor between two revocations, once with a grant to end and once with none.
func raisedFloorIsListed(s *stage) {
	before := s.revokeMany(1)
	s.hold(s.First, s.key("live"), s.open(s.First, longTTL))
	var reasons []string
	for i, b := range []port.Backend{s.First, s.Second} {
		req := port.FloorRequest{Operator: "operator", Reason: fmt.Sprintf("restored, step %d", i), Above: before[0].Floor + 1000}
		raised := must[port.FloorRaised](s, "raise floor")(b.Custodian.RaiseFloor(s.Context(), req))
		if raised.EndedGrants != 1-i {
			s.Errorf("step %d ended %d grants, want %d", i, raised.EndedGrants, 1-i)
		}
		for _, namespace := range []string{lock.DefaultNamespace, "elsewhere"} {
			list, _, err := s.First.Catalog.Revocations(s.Context(), namespace, port.Page{Size: 1})
			if err != nil || len(list) != 1 {
				s.Fatalf("%s lists %d records, %v, want the raised floor", namespace, len(list), err)
			}
			r := list[0]
			if r.Operator != req.Operator || r.Reason != req.Reason || r.At.IsZero() || r.Floor < req.Above || r.Floor > raised.Floor {
				s.Errorf("the newest record of %s is %+v, want the floor raised to %d", namespace, r, raised.Floor)
			}
		}
		reasons = append([]string{req.Reason}, reasons...)
	}
	after := s.revokeMany(1)
	var got []string
	for _, r := range s.revocations(s.Second) {
		got = append(got, r.Reason)
	}
	want := slices.Concat([]string{after[0].Reason}, reasons, []string{before[0].Reason})
	if !slices.Equal(got, want) {
		s.Errorf("listed are %q, want %q", got, want)
	}
}
