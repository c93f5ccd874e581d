package feed_test

import (
	"testing"

	"github.com/fencelock/fencelock/core/feed"
	"github.com/fencelock/fencelock/core/lock"
	"github.com/fencelock/fencelock/core/port"
)

func news(token lock.Token) port.FeedEvent {
	return port.FeedEvent{Kind: port.GrantRevoked, Token: token}
}

// pending takes what waits in a subscription.
func pending(sub port.Subscription) []port.FeedEvent {
	var events []port.FeedEvent
	for {
		select {
		case ev, open := <-sub.Events():
			if !open {
				return events
			}
			events = append(events, ev)
		default:
			return events
		}
	}
}

func expect(t *testing.T, what string, sub port.Subscription, want ...port.FeedEvent) {
	t.Helper()
	got := pending(sub)
	if len(got) != len(want) {
		t.Errorf("%s: %+v, want %+v", what, got, want)
		return
	}
	for i := range want {
		if got[i] != want[i] {
			t.Errorf("%s: event %d is %+v, want %+v", what, i, got[i], want[i])
		}
	}
}

func TestSubscriptionBeginsWithAResyncOnceTheFeedIsInPlace(t *testing.T) {
	t.Parallel()
	f, resync := feed.New(), port.FeedEvent{Kind: port.Resync}
	early := f.Subscribe()
	expect(t, "before the feed is in place", early)
	f.Begin()
	late := f.Subscribe()
	expect(t, "an early subscriber", early, resync)
	expect(t, "a late subscriber", late, resync)
	f.Pause()
	between := f.Subscribe()
	expect(t, "during a pause", between)
	f.Begin()
	for _, sub := range []port.Subscription{early, late, between} {
		expect(t, "after a pause", sub, resync)
	}
}

func TestEverySubscriberGetsEveryEventInOrder(t *testing.T) {
	t.Parallel()
	f := feed.New()
	if f.Heard() {
		t.Error("heard by nobody")
	}
	a, b := f.Subscribe(), f.Subscribe()
	f.Tell(news(1), news(2))
	b.Close()
	f.Tell(news(3))
	expect(t, "who stays", a, news(1), news(2), news(3))
	expect(t, "who left", b, news(1), news(2))
	if _, open := <-b.Events(); open {
		t.Error("a subscription that was closed is open")
	}
	if !f.Heard() {
		t.Error("a subscriber is left, and is not known")
	}
	a.Close()
	a.Close()
	if f.Heard() {
		t.Error("heard after the last one left")
	}
}

func TestSlowSubscriberLosesEventsAndGetsOneResync(t *testing.T) {
	t.Parallel()
	f := feed.New()
	slow, quick := f.Subscribe(), f.Subscribe()
	for i := range lock.Token(2 * feed.Backlog) {
		f.Tell(news(i))
		expect(t, "a quick subscriber", quick, news(i))
	}
	got := pending(slow)
	if len(got) != feed.Backlog {
		t.Fatalf("%d events wait, want %d", len(got), feed.Backlog)
	}
	for i, ev := range got[:len(got)-1] {
		if ev != news(lock.Token(i)) {
			t.Errorf("event %d is %+v", i, ev)
		}
	}
	if last := got[len(got)-1]; last.Kind != port.Resync {
		t.Errorf("the last event is %+v, want a resync", last)
	}
	f.Tell(news(7))
	expect(t, "who has caught up", slow, news(7))
}

func TestEndEndsAllSubscriptions(t *testing.T) {
	t.Parallel()
	f := feed.New()
	f.Begin()
	present := f.Subscribe()
	f.End()
	for name, sub := range map[string]port.Subscription{"a present": present, "a future": f.Subscribe()} {
		pending(sub)
		if _, open := <-sub.Events(); open {
			t.Errorf("%s subscription is open after the end", name)
		}
		sub.Close()
	}
	f.Tell(news(1))
	f.Begin()
	f.End()
}
