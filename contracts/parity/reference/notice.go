package reference

import (
	"github.com/fencelock/fencelock/core/lock"
	"github.com/fencelock/fencelock/core/port"
)

// wake is one registration for the end of a key's grant.
type wake struct {
	client *Client
	key    lock.Key
	fired  chan struct{} // one pending signal at most
}

// Fired implements [port.Wake].
func (r *wake) Fired() <-chan struct{} { return r.fired }

// Cancel implements [port.Wake].
func (r *wake) Cancel() {
	w := r.client.world
	w.mu.Lock()
	defer w.mu.Unlock()
	w.steps.cancel(r)
}

// register notes interest in a key. A client that has stopped hears nothing.
func (w *World) register(c *Client, key lock.Key) *wake {
	r := &wake{client: c, key: key, fired: make(chan struct{}, 1)}
	if !c.gone() {
		w.wakes[r] = struct{}{}
	}
	return r
}

// cancel ends a registration (clause WAIT-05).
func (w *World) cancel(r *wake) { delete(w.wakes, r) }

// fire leaves one pending signal.
func (r *wake) fire() {
	select {
	case r.fired <- struct{}{}:
	default:
	}
}

// wake tells all who registered for the key, on any client that can hear.
func (w *World) wake(key lock.Key) {
	for r := range w.wakes {
		if r.key == key && r.client.hears() {
			r.fire()
		}
	}
}

// subscriptionBuffer is how many events a subscriber may fall behind.
const subscriptionBuffer = 256

// subscription is one stream of events.
type subscription struct {
	client *Client
	events chan port.FeedEvent
}

// Events implements [port.Subscription].
func (s *subscription) Events() <-chan port.FeedEvent { return s.events }

// Close implements [port.Subscription].
func (s *subscription) Close() {
	w := s.client.world
	w.mu.Lock()
	defer w.mu.Unlock()
	s.end()
}

// end closes the stream once.
func (s *subscription) end() {
	w := s.client.world
	if _, open := w.subscriptions[s]; open {
		delete(w.subscriptions, s)
		close(s.events)
	}
}

// send queues an event. Only the world sends, under its mutex: so after the
// queue was emptied there is room.
func (s *subscription) send(e port.FeedEvent) {
	select {
	case s.events <- e:
	default:
		s.resync()
	}
}

// resync drops what is queued and queues a Resync in its place.
func (s *subscription) resync() {
	for {
		select {
		case <-s.events:
			continue
		default:
		}
		s.events <- port.FeedEvent{Kind: port.Resync}
		return
	}
}

// tell sends an event to all subscribers that can hear (clause REV-03).
func (w *World) tell(e port.FeedEvent) {
	for s := range w.subscriptions {
		if s.client.hears() {
			s.send(e)
		}
	}
}
