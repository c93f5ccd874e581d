package client_test

import (
	"context"
	"errors"
	"net"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/fencelock/fencelock/contracts/api/fencelock/v1/fencelockv1connect"
)

// network is a loopback of pipes, so that it can live inside a bubble.
type network struct {
	mu    sync.Mutex
	nodes map[string]*node
}

// node is one lock server of the network.
type node struct {
	world *world
	// accept hands connections to the server.
	accept chan net.Conn
	closed chan struct{}
	server *http.Server
	down   gate // while shut, dialling is refused
	wires  gate // while shut, bytes vanish until it opens
	mu     sync.Mutex
	recent *gate // of the connections since the last freeze
	drain  chan struct{}
	deaf   flag // streams are not listened to
	dials  counter
}

// addNode starts a server of the world. http2 false makes it a server behind
// which no stream can be had.
func (n *network) addNode(t *testing.T, name string, w *world, http2 bool) *node {
	t.Helper()
	srv := &node{
		world: w, accept: make(chan net.Conn), closed: make(chan struct{}), drain: make(chan struct{}), recent: &gate{},
	}
	mux := http.NewServeMux()
	mux.Handle(fencelockv1connect.NewSessionServiceHandler(&sessionHandler{node: srv}))
	mux.Handle(fencelockv1connect.NewLockServiceHandler(&lockHandler{node: srv}))
	srv.server = &http.Server{Handler: mux, Protocols: new(http.Protocols)}
	srv.server.Protocols.SetHTTP1(true)
	srv.server.Protocols.SetUnencryptedHTTP2(http2)
	var serving sync.WaitGroup
	serving.Go(func() { _ = srv.server.Serve(listener{srv}) })
	n.mu.Lock()
	if n.nodes == nil {
		n.nodes = map[string]*node{}
	}
	n.nodes[name+":80"] = srv
	n.mu.Unlock()
	t.Cleanup(func() {
		srv.wires.open()
		_ = srv.server.Close()
		serving.Wait()
		w.busy.Wait()
	})
	return srv
}

func (n *network) dial(ctx context.Context, _, address string) (net.Conn, error) {
	n.mu.Lock()
	srv := n.nodes[address]
	n.mu.Unlock()
	refused := &net.OpError{Op: "dial", Net: "pipe", Err: errors.New("connection refused")}
	if srv == nil || srv.down.isShut() {
		return nil, refused
	}
	srv.dials.add()
	near, far := net.Pipe()
	if srv.wires.isShut() { // a dead network does not refuse, it keeps silent
		<-ctx.Done()
		return nil, &net.OpError{Op: "dial", Net: "pipe", Err: ctx.Err()}
	}
	srv.mu.Lock()
	recent := srv.recent
	srv.mu.Unlock()
	accepted := newWire(far, &srv.wires, recent)
	select {
	case srv.accept <- accepted:
		return newWire(near, &srv.wires, recent), nil
	case <-srv.closed:
		_ = accepted.Close()
		return nil, refused
	case <-ctx.Done():
		_ = accepted.Close()
		return nil, ctx.Err()
	}
}

// freeze lets the connections that exist carry nothing any more. New ones work.
func (n *node) freeze() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.recent.shut()
	n.recent = &gate{}
}

type listener struct{ node *node }

func (l listener) Accept() (net.Conn, error) {
	select {
	case c := <-l.node.accept:
		return c, nil
	case <-l.node.closed:
		return nil, net.ErrClosed
	}
}

func (l listener) Close() error {
	select {
	case <-l.node.closed:
	default:
		close(l.node.closed)
	}
	return nil
}

func (l listener) Addr() net.Addr { return &net.IPAddr{} }

// wire is one end of a connection. As in a kernel, writing never blocks; a pump carries
// what was written to the other end, as long as the gates are open.
type wire struct {
	net.Conn
	gates []*gate
	cut   chan struct{} // closed by Close
	once  sync.Once
	wake  chan struct{}
	mu    sync.Mutex
	buf   []byte
}

func newWire(c net.Conn, gates ...*gate) *wire {
	w := &wire{Conn: c, gates: gates, cut: make(chan struct{}), wake: make(chan struct{}, 1)}
	go w.pump()
	return w
}

func (w *wire) Write(p []byte) (int, error) {
	select {
	case <-w.cut:
		return 0, net.ErrClosed
	default:
	}
	w.mu.Lock()
	w.buf = append(w.buf, p...)
	w.mu.Unlock()
	select {
	case w.wake <- struct{}{}:
	default:
	}
	return len(p), nil
}

// pump ends with the connection, after what was written before.
func (w *wire) pump() {
	defer w.Conn.Close()
	for open := true; open; {
		select {
		case <-w.wake:
		case <-w.cut:
			open = false
			_ = w.SetWriteDeadline(time.Now().Add(time.Second)) // the other end may be closing, too
		}
		for _, g := range w.gates {
			if !g.pass(w.cut) {
				return
			}
		}
		w.mu.Lock()
		buf := w.buf
		w.buf = nil
		w.mu.Unlock()
		if len(buf) == 0 {
			continue
		}
		if _, err := w.Conn.Write(buf); err != nil {
			return
		}
	}
}

func (w *wire) Close() error {
	w.once.Do(func() { close(w.cut) })
	return nil
}

// gate holds callers up while it is shut. The zero gate is open.
type gate struct {
	mu    sync.Mutex
	shutC chan struct{}
}

func (g *gate) shut() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.shutC == nil {
		g.shutC = make(chan struct{})
	}
}

func (g *gate) open() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.shutC != nil {
		close(g.shutC)
		g.shutC = nil
	}
}

func (g *gate) isShut() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.shutC != nil
}

// pass waits until the gate is open; false if gone closes first.
func (g *gate) pass(gone <-chan struct{}) bool {
	g.mu.Lock()
	shut := g.shutC
	g.mu.Unlock()
	if shut == nil {
		return true
	}
	select {
	case <-shut:
		return true
	case <-gone:
		return false
	}
}

type counter struct {
	mu sync.Mutex
	n  int
}

func (c *counter) add() {
	c.mu.Lock()
	c.n++
	c.mu.Unlock()
}

func (c *counter) get() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.n
}

// testClock is a suspend-aware clock that can be made to jump, as a machine's
// does when it wakes up.
type testClock struct {
	start time.Time
	mu    sync.Mutex
	slept time.Duration
}

func newClock() *testClock { return &testClock{start: time.Now()} }

func (c *testClock) Elapsed() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	return time.Since(c.start) + c.slept
}

func (c *testClock) jump(d time.Duration) {
	c.mu.Lock()
	c.slept += d
	c.mu.Unlock()
}
