package client

import (
	"time"

	v1 "github.com/fencelock/fencelock/contracts/api/fencelock/v1"
)

// Reckoner is the seam for wrong ways to reckon a deadline.
type Reckoner = func(sent, received, guaranteed time.Duration, margin float64) time.Duration

// WithReckoner replaces how deadlines are reckoned.
func WithReckoner(r Reckoner) Option { return func(c *config) { c.reckon = r } }

// Poke makes the session send a heartbeat now.
func (s *Session) Poke() { s.poke() }

// Linked reports whether the stream is in use.
func (c *Client) Linked() bool { return c.link.current() != nil }

// Suspicion is how long heartbeats ask for what is held after a retry.
const Suspicion = suspicion

// Lazy makes an option only when it is applied: inside the bubble whose time it uses.
func Lazy(option func() Option) Option { return func(c *config) { option()(c) } }

// Preferred is the index of the endpoint that is asked first.
func (c *Client) Preferred() int { return c.pool.current() }

// Frames cuts queued operations into frames.
func Frames(ops []*v1.Operation) (frames [][]*v1.Operation) {
	c := &conn{queue: ops}
	for frame := c.frame(); len(frame) > 0; frame = c.frame() {
		frames = append(frames, frame)
	}
	return frames
}
