package client

import (
	"context"
	"sync"
	"time"

	"connectrpc.com/connect"

	v1 "github.com/fencelock/fencelock/contracts/api/fencelock/v1"
	"github.com/fencelock/fencelock/core/lock"
)

// Pauses between attempts to open the stream. Unary calls do the work meanwhile.
const (
	relinkBase = 50 * time.Millisecond
	// relinkMost is for a server that is away, relinkUnable for one that answers
	// but cannot carry the stream.
	relinkMost   = 2 * time.Second
	relinkUnable = 30 * time.Second
)

// link keeps one stream open for all sessions of the client, as far as the
// network and the servers allow.
type link struct {
	client *Client
	begin  sync.Once

	mu   sync.Mutex
	conn *conn // nil while there is none to use
}

// start opens the stream in the background, once.
func (l *link) start() {
	if l.client.cfg.unary {
		return
	}
	l.begin.Do(func() { l.client.loops.Go(func() { l.run(l.client.ctx) }) })
}

// current returns the stream to use, or nil.
func (l *link) current() *conn {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.conn
}

func (l *link) run(ctx context.Context) {
	wait := backoff{base: relinkBase, most: relinkMost}
	for ctx.Err() == nil {
		opened := l.client.now()
		err := l.once(ctx)
		wait.most = relinkMost
		switch {
		case err == nil && l.client.now()-opened > relinkMost:
			wait.reset()
		case connect.CodeOf(err) == connect.CodeUnimplemented:
			wait.failures, wait.most = backoffDoublings, relinkUnable
		case err != nil && !notSent(err):
			wait.most = relinkUnable
		}
		if pause(ctx, wait.next(0)) != nil {
			return
		}
	}
}

// once runs one stream until it ends or is left. The error is that of a
// stream which never opened.
func (l *link) once(ctx context.Context) error {
	c := newConn(l.client, l.client.pool.current())
	ready := make(chan struct{})
	ended := make(chan struct{})
	var failure error
	l.client.loops.Go(func() {
		defer close(ended)
		failure = c.serve(ctx, func() { close(ready) })
	})
	select {
	case <-ended:
		return failure // unary calls do the work meanwhile, and find out which endpoints do not
	case <-ready:
	}
	l.swap(nil, c)
	l.client.greet() // present all sessions, so that the server knows whose news to send
	select {
	case <-ended:
		l.client.pool.fail(c.endpoint)
	case <-c.left:
	}
	l.swap(c, nil)
	return nil
}

func (l *link) swap(from, to *conn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.conn == from {
		l.conn = to
	}
}

// failed judges the stream after a heartbeat on it failed. One that has been
// silent since the heartbeat was sent is taken for dead.
func (l *link) failed(c *conn, sent time.Duration) {
	l.client.pool.fail(c.endpoint)
	if c.silentSince(sent) {
		c.abort(lock.Contention("the stream is silent", true, nil))
	}
}

// outdone is called when a heartbeat that failed on the stream c succeeded by another way.
// If that was another endpoint, the stream moves there.
func (l *link) outdone(c *conn) {
	if l.client.pool.current() != c.endpoint {
		c.abort(errMoved)
	}
}

// event hands news to the session that it is for.
func (l *link) event(c *conn, event *v1.SessionEvent) {
	if event.GetDraining() != nil {
		l.client.pool.fail(c.endpoint)
		l.swap(c, nil)
		c.leave()
		return
	}
	if s := l.client.session(event.GetSessionId()); s != nil {
		s.event(event)
	}
}

var errMoved = lock.Contention("the stream moved to another endpoint", true, nil)
