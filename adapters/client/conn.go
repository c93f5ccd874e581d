package client

import (
	"context"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"

	v1 "github.com/fencelock/fencelock/contracts/api/fencelock/v1"
	"github.com/fencelock/fencelock/contracts/api/fencelock/v1/fencelockv1connect"
	"github.com/fencelock/fencelock/core/lock"
)

// Limits of one frame; what does not fit goes into the next.
const (
	frameOperations = 128
	frameBytes      = 32 << 10
)

// flight is one operation on its way.
type flight struct {
	ended  chan struct{} // closed once result or err is set
	result *v1.OperationResult
	err    error
}

// conn is one life of the stream: one endpoint, one TCP connection of its own, so that a
// new conn never inherits a dead connection.
type conn struct {
	client    *Client
	endpoint  int
	transport *http.Transport
	cancel    context.CancelCauseFunc
	// lastFrame is the clock's reading when a frame last arrived.
	lastFrame atomic.Int64
	wake      chan struct{} // one pending signal: the queue is not empty
	left      chan struct{} // closed by leave

	mu      sync.Mutex
	queue   []*v1.Operation
	pending map[uint64]*flight
	lastID  uint64
	leaving bool  // the stream ends once nothing is in flight
	over    error // set once: nothing begins any more
}

func newConn(c *Client, endpoint int) *conn {
	return &conn{
		client:    c,
		endpoint:  endpoint,
		transport: streamTransport(c.cfg),
		wake:      make(chan struct{}, 1),
		left:      make(chan struct{}),
		pending:   map[uint64]*flight{},
	}
}

// serve runs the stream until it ends, which it reports. ready is called after
// the first frame: only then is it known that the server can do it.
func (c *conn) serve(ctx context.Context, ready func()) error {
	ctx, cancel := context.WithCancelCause(ctx)
	c.mu.Lock()
	c.cancel = cancel
	c.mu.Unlock()
	defer c.transport.CloseIdleConnections()
	defer cancel(nil)
	rpc := fencelockv1connect.NewSessionServiceClient(&pinned{c.client.pool, c.endpoint, c.transport}, baseURL, plain())
	stream := rpc.Attach(ctx)
	// While a request's body is open, HTTP/2 does not heed the end of its context.
	defer context.AfterFunc(ctx, func() { _ = stream.CloseRequest() })()
	// A cancel of nothing is the cheapest question that has an answer.
	_, _ = c.begin(&v1.Operation{Call: &v1.Operation_Cancel{Cancel: &v1.CancelOperation{}}})
	impatience := time.AfterFunc(c.client.cfg.tryTimeout(), func() {
		cancel(lock.Contention("the stream did not open in time", false, nil))
	})
	defer impatience.Stop()
	var sender sync.WaitGroup
	sender.Go(func() { c.send(ctx, stream) })
	err := c.receive(stream, func() {
		impatience.Stop()
		ready()
	})
	if cause := context.Cause(ctx); cause != nil {
		err = cause
	}
	cancel(err)
	sender.Wait()
	_ = stream.CloseResponse()
	c.end(err)
	return err
}

// send writes whatever is queued as one frame, as long as there is something.
func (c *conn) send(ctx context.Context, stream *connect.BidiStreamForClient[v1.AttachRequest, v1.AttachResponse]) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-c.wake:
		}
		for frame := c.frame(); len(frame) > 0; frame = c.frame() {
			if stream.Send(&v1.AttachRequest{Operations: frame}) != nil {
				return // the receiver learns the reason
			}
		}
	}
}

// frame takes the next frame's operations from the queue.
func (c *conn) frame() []*v1.Operation {
	c.mu.Lock()
	defer c.mu.Unlock()
	n, size := 0, 0
	for n < len(c.queue) && n < frameOperations {
		size += proto.Size(c.queue[n])
		if n > 0 && size > frameBytes {
			break
		}
		n++
	}
	frame := c.queue[:n:n]
	if c.queue = c.queue[n:]; len(c.queue) == 0 {
		c.queue = nil
	}
	return frame
}

// receive hands out results and events until the stream ends.
func (c *conn) receive(
	stream *connect.BidiStreamForClient[v1.AttachRequest, v1.AttachResponse], first func(),
) error {
	for {
		msg, err := stream.Receive()
		if err != nil {
			return err //nolint:wrapcheck // its code decides how long to leave the stream alone
		}
		c.lastFrame.Store(int64(c.client.now()))
		for _, result := range msg.GetResults() {
			c.settle(result)
		}
		if first != nil {
			first()
			first = nil
		}
		for _, event := range msg.GetEvents() {
			c.client.link.event(c, event)
		}
	}
}

// begin queues an operation. It fails only if the stream is over.
func (c *conn) begin(op *v1.Operation) (*flight, error) {
	f := &flight{ended: make(chan struct{})}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.over != nil {
		return nil, c.over
	}
	c.lastID++
	op.Id = c.lastID
	c.pending[c.lastID] = f
	c.queue = append(c.queue, op)
	select {
	case c.wake <- struct{}{}:
	default:
	}
	return f, nil
}

// wait returns the result of an operation. If the context ends first, the operation
// stays in flight; the server is asked to give it up, and ended tells when it has.
func (c *conn) wait(ctx context.Context, id uint64, f *flight) (*v1.OperationResult, error) {
	select {
	case <-f.ended:
	case <-ctx.Done():
		_, _ = c.begin(&v1.Operation{Call: &v1.Operation_Cancel{Cancel: &v1.CancelOperation{Id: id}}})
		return nil, interrupted(context.Cause(ctx))
	}
	if f.err != nil {
		return nil, f.err
	}
	if detail := f.result.GetError(); detail != nil {
		return nil, fromDetail(detail)
	}
	return f.result, nil
}

func (c *conn) settle(result *v1.OperationResult) {
	c.mu.Lock()
	f := c.pending[result.GetId()]
	delete(c.pending, result.GetId())
	idle := c.leaving && len(c.pending) == 0
	c.mu.Unlock()
	if idle {
		defer c.abort(errMoved)
	}
	if f != nil {
		f.result = result
		close(f.ended)
	}
}

// end fails what is in flight: its outcome is unknown.
func (c *conn) end(cause error) {
	err := lock.Contention("the stream broke", true, cause)
	c.mu.Lock()
	c.over = err
	pending := c.pending
	c.pending, c.queue = nil, nil
	c.mu.Unlock()
	for _, f := range pending {
		f.err = err
		close(f.ended)
	}
}

// leave lets the stream finish what is in flight, for a bounded time, and end.
func (c *conn) leave() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.leaving {
		return
	}
	c.leaving = true
	close(c.left)
	patience := c.client.cfg.tryTimeout()
	if len(c.pending) == 0 {
		patience = 0
	}
	time.AfterFunc(patience, func() { c.abort(errMoved) })
}

// abort ends the stream from outside.
func (c *conn) abort(cause error) {
	c.mu.Lock()
	cancel := c.cancel
	c.mu.Unlock()
	if cancel != nil {
		cancel(cause)
	}
}

// silentSince reports whether no frame arrived after a moment.
func (c *conn) silentSince(moment time.Duration) bool {
	return time.Duration(c.lastFrame.Load()) < moment
}
