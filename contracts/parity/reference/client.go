package reference

import (
	"context"
	"sync"
	"time"

	"github.com/fencelock/fencelock/core/lock"
	"github.com/fencelock/fencelock/core/port"
)

// Client is one lock server's access to a world. It implements every port.
type Client struct {
	world *World

	// Guarded by the world's mutex.
	partitioned bool
	holding     chan struct{} // not nil while answers are held back; closed at resume
	stopped     chan struct{} // closed when the client has stopped
	weather     func() Passage
}

// Passage is what the link does to one call.
type Passage struct {
	// There and Back are how long the request and the answer take.
	There, Back time.Duration
	// RequestLost and AnswerLost end the call as ambiguous; a lost request is not carried out.
	RequestLost, AnswerLost bool
}

// Client returns a new client of the world.
func (w *World) Client() *Client {
	return &Client{world: w, stopped: make(chan struct{}), weather: func() Passage { return Passage{} }}
}

// Weather makes the link treat each call as drawn. Set it before the client is used.
func (c *Client) Weather(draw func() Passage) { c.weather = draw }

// Backend returns the client as all ports.
func (c *Client) Backend() port.Backend { return c.world.steps.backend(c) }

// Partition cuts the client off from the world, both ways, until heal.
func (c *Client) Partition() (heal func()) {
	c.world.mu.Lock()
	defer c.world.mu.Unlock()
	c.partitioned = true
	return sync.OnceFunc(func() {
		c.world.mu.Lock()
		defer c.world.mu.Unlock()
		c.world.steps.heal(c)
	})
}

// Pause holds back everything the world says to the client until resume;
// what the client says is carried out.
func (c *Client) Pause() (resume func()) {
	c.world.mu.Lock()
	defer c.world.mu.Unlock()
	holding := make(chan struct{})
	c.holding = holding
	return sync.OnceFunc(func() {
		c.world.mu.Lock()
		defer c.world.mu.Unlock()
		c.holding = nil
		close(holding)
		c.catchUp()
	})
}

// Stop ends the client for good, as the death of its server would.
func (c *Client) Stop() {
	c.world.mu.Lock()
	defer c.world.mu.Unlock()
	if !c.gone() {
		c.world.steps.stop(c)
	}
}

// backend returns the client itself behind each port.
func (c *Client) backend() port.Backend {
	return port.Backend{
		Locks: c, Sessions: c, Waiter: c, Handover: c, Catalog: c, Feed: c, Custodian: c,
	}
}

// heal ends a partition.
func (c *Client) heal() {
	c.partitioned = false
	c.catchUp()
}

// stop ends what the client has open; the world keeps all that it was told.
func (c *Client) stop() {
	close(c.stopped)
	for r := range c.world.wakes {
		if r.client == c {
			delete(c.world.wakes, r)
		}
	}
	for s := range c.world.subscriptions {
		if s.client == c {
			s.end()
		}
	}
}

// gone reports whether the client has stopped.
func (c *Client) gone() bool {
	select {
	case <-c.stopped:
		return true
	default:
		return false
	}
}

// hears reports whether news reaches the client now.
func (c *Client) hears() bool { return !c.partitioned && c.holding == nil }

// catchUp tells a client that may have missed news to look for itself.
func (c *Client) catchUp() {
	for r := range c.world.wakes {
		if r.client == c {
			r.fire()
		}
	}
	for s := range c.world.subscriptions {
		if s.client == c {
			s.resync()
		}
	}
}

// call carries a step out in the world and brings the answer back, as far as
// the client's link lets it.
func call[A any](ctx context.Context, c *Client, step func(now time.Time) (A, error)) (A, error) {
	var none A
	if err := ctx.Err(); err != nil {
		return none, lock.Contention("the call ended before it was sent", false, err)
	}
	passage := c.weather()
	if passage.RequestLost || !travel(ctx, passage.There) {
		return none, c.world.steps.answerLost(ctx.Err())
	}
	answer, holding, err := carryOut(c, step)
	if passage.AnswerLost || !travel(ctx, passage.Back) {
		return none, c.world.steps.answerLost(ctx.Err())
	}
	if holding == nil {
		return answer, err
	}
	select {
	case <-holding:
		return answer, err
	case <-c.stopped:
		return none, c.world.steps.answerLost(nil)
	case <-ctx.Done():
		return none, c.world.steps.answerLost(ctx.Err())
	}
}

// carryOut runs a step as one atomic act at one instant. The answer may be
// seen once holding is closed, at once if it is nil.
func carryOut[A any](c *Client, step func(now time.Time) (A, error)) (answer A, holding chan struct{}, err error) {
	w := c.world
	w.mu.Lock()
	defer w.mu.Unlock()
	if c.partitioned || c.gone() || w.closed {
		return answer, nil, w.steps.unreachable()
	}
	now := time.Now()
	w.pass(now)
	answer, err = step(now)
	return answer, c.holding, err
}

// travel waits for d and reports whether the call still goes on.
func travel(ctx context.Context, d time.Duration) bool {
	if d <= 0 {
		return true
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}
