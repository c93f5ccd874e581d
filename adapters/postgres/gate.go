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
	// claims are of those who are about to change a session's row.
	claims map[lock.SessionID]*claim
}

// turnstile is of one place; wanted counts who is at it.
type turnstile struct {
	turn   chan struct{}
	wanted int
}

// claim is on a session's row; over is closed when the last of those who claim it is done.
type claim struct {
	over   chan struct{}
	claims int
}

// newGate returns a gate over a pool of that many connections.
func newGate(connections int32) *gate {
	return &gate{
		places: map[any]*turnstile{}, claims: map[lock.SessionID]*claim{},
		lane: make(chan struct{}, max(1, connections/4)), beats: make(chan struct{}, 1),
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

// claim asks those who share a session's row to let it be until done: the database lets them in ahead of who
// waits for them to leave, so a session that asks for many keys at once could not be renewed.
func (g *gate) claim(session lock.SessionID) (done func()) {
	g.mu.Lock()
	defer g.mu.Unlock()
	c := g.claims[session]
	if c == nil {
		c = &claim{over: make(chan struct{})}
		g.claims[session] = c
	}
	c.claims++
	return func() {
		g.mu.Lock()
		defer g.mu.Unlock()
		if c.claims--; c.claims == 0 {
			delete(g.claims, session)
			close(c.over)
		}
	}
}

// respect waits until a claim on the session's row that there is now is over, or ctx ends.
func (g *gate) respect(ctx context.Context, session lock.SessionID) {
	g.mu.Lock()
	c := g.claims[session]
	g.mu.Unlock()
	if c == nil {
		return
	}
	select {
	case <-c.over:
	case <-ctx.Done():
	}
}
