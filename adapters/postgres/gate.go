package postgres

import (
	"context"
	"sync"

	"github.com/fencelock/fencelock/core/lock"
)

// gate lets one statement about a key go on at a time, in the order of arrival: the others would only wait in the store, each on
// a connection of its own. So a row that somebody keeps locked takes one connection, and in the slow
// lane there are few.
type gate struct {
	mu   sync.Mutex
	keys map[lock.Key]*turnstile
	lane chan struct{}
}

// turnstile is of one key; wanted counts who is at it.
type turnstile struct {
	turn   chan struct{}
	wanted int
}

// newGate returns a gate over a pool of that many connections.
func newGate(connections int32) *gate {
	return &gate{keys: map[lock.Key]*turnstile{}, lane: make(chan struct{}, max(1, connections/4))}
}

// enter waits for the key's turn.
func (g *gate) enter(ctx context.Context, key lock.Key) (leave func(), err error) {
	g.mu.Lock()
	t := g.keys[key]
	if t == nil {
		t = &turnstile{turn: make(chan struct{}, 1)}
		g.keys[key] = t
	}
	t.wanted++
	g.mu.Unlock()
	select {
	case t.turn <- struct{}{}:
		return func() { <-t.turn; g.forget(key, t) }, nil
	case <-ctx.Done():
		g.forget(key, t)
		return nil, lock.Contention("the key is busy", false, ctx.Err())
	}
}

func (g *gate) forget(key lock.Key, t *turnstile) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if t.wanted--; t.wanted == 0 {
		delete(g.keys, key)
	}
}

// slow waits for a place in the slow lane.
func (g *gate) slow(ctx context.Context) (leave func(), err error) {
	select {
	case g.lane <- struct{}{}:
		return func() { <-g.lane }, nil
	case <-ctx.Done():
		return nil, lock.Contention("the key is locked by another transaction of the store", false, ctx.Err())
	}
}
