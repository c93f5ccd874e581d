package client_test

import (
	"sync"
	"sync/atomic"
)

// flag is a switch that a test turns while faults read it.
type flag struct{ v atomic.Bool }

func (f *flag) set(on bool) { f.v.Store(on) }
func (f *flag) get() bool   { return f.v.Load() }

// tally counts, or remembers the most it has seen.
type tally struct {
	mu sync.Mutex
	n  int
}

func (c *tally) add(d int) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.n += d
	return c.n
}

func (c *tally) see(n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.n = max(c.n, n)
}

func (c *tally) get() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.n
}
