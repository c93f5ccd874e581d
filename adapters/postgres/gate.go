package postgres

import (
	"context"
	"sync"

	"github.com/fencelock/fencelock/core/lock"
)

// gate keeps who waits for a row in the store from taking all connections. One statement at a time goes on about
// a place, in the order of arrival: the others would only wait behind it, each on a connection of its own. A place is a key,
// or a session. And what has found its row locked for long goes on in a slow lane, of a few connections.
type gate struct {
	mu     sync.Mutex
	places map[any]*turnstile
	lane   chan struct{}
	// beats is the slow lane of heartbeats, which have connections of their own.
	beats chan struct{}
}

// turnstile is of one place; wanted counts who is at it.
type turnstile struct {
	turn   chan struct{}
	wanted int
}

// newGate returns a gate over a pool of that many connections.
func newGate(connections int32) *gate {
	return &gate{
		places: map[any]*turnstile{},
		lane:   make(chan struct{}, max(1, connections/4)), beats: make(chan struct{}, 1),
	}
}

// enter waits for the turn at a place.
func (g *gate) enter(ctx context.Context, place any) (leave func(), err error) {
	g.mu.Lock()
	t := g.places[place]
	if t == nil {
		t = &turnstile{turn: make(chan struct{}, 1)}
		g.places[place] = t
	}
	t.wanted++
	g.mu.Unlock()
	select {
	case t.turn <- struct{}{}:
		return func() { <-t.turn; g.forget(place, t) }, nil
	case <-ctx.Done():
		g.forget(place, t)
		return nil, lock.Contention("others wait for the same row of the store", false, ctx.Err())
	}
}

func (g *gate) forget(place any, t *turnstile) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if t.wanted--; t.wanted == 0 {
		delete(g.places, place)
	}
}

// slow waits for room in a slow lane.
func slow(ctx context.Context, lane chan struct{}) (leave func(), err error) {
	select {
	case lane <- struct{}{}:
		return func() { <-lane }, nil
	case <-ctx.Done():
		return nil, lock.Contention("another transaction of the store holds the row", false, ctx.Err())
	}
}
