package feed

import (
	"sync"

	"github.com/fencelock/fencelock/core/port"
)

// Backlog is how many events a subscriber may fall behind.
const Backlog = 256

// Feed has the subscribers. It never waits for one. Its methods are safe for concurrent use.
type Feed struct {
	mu      sync.Mutex
	subs    map[*subscription]struct{}
	inPlace bool
	over    bool
}

// New returns a Feed that is not in place yet.
func New() *Feed { return &Feed{subs: map[*subscription]struct{}{}} }

// subscription is one subscriber. Sends and the close of events happen under the feed's mutex.
type subscription struct {
	feed   *Feed
	events chan port.FeedEvent
}

// Subscribe implements port.Feed.
func (f *Feed) Subscribe() port.Subscription {
	sub := &subscription{feed: f, events: make(chan port.FeedEvent, Backlog)}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.over {
		close(sub.events)
		return sub
	}
	f.subs[sub] = struct{}{}
	if f.inPlace {
		sub.send(port.FeedEvent{Kind: port.Resync})
	}
	return sub
}

// Events implements port.Subscription.
func (sub *subscription) Events() <-chan port.FeedEvent { return sub.events }

// Close implements port.Subscription.
func (sub *subscription) Close() {
	sub.feed.mu.Lock()
	defer sub.feed.mu.Unlock()
	if _, open := sub.feed.subs[sub]; open {
		delete(sub.feed.subs, sub)
		close(sub.events)
	}
}

// send never blocks. The last place in the channel is kept for a Resync, which
// stands for itself and for all that finds no place behind it.
func (sub *subscription) send(ev port.FeedEvent) {
	switch len(sub.events) {
	case cap(sub.events):
	case cap(sub.events) - 1:
		sub.events <- port.FeedEvent{Kind: port.Resync}
	default:
		sub.events <- ev
	}
}

// Tell sends the events to all subscribers.
func (f *Feed) Tell(events ...port.FeedEvent) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.tell(events...)
}

func (f *Feed) tell(events ...port.FeedEvent) {
	for _, ev := range events {
		for sub := range f.subs {
			sub.send(ev)
		}
	}
}

// Begin says that events are seen from now on: a Resync goes to all subscribers, and to later ones at once.
func (f *Feed) Begin() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.inPlace = true
	f.tell(port.FeedEvent{Kind: port.Resync})
}

// Pause says that events may be missed until the next Begin.
func (f *Feed) Pause() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.inPlace = false
}

// Heard reports whether there is a subscriber.
func (f *Feed) Heard() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.subs) > 0
}

// End ends every subscription, present and future.
func (f *Feed) End() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.over = true
	for sub := range f.subs {
		delete(f.subs, sub)
		close(sub.events)
	}
}
