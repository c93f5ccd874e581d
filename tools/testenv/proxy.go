package testenv

import (
	"errors"
	"io"
	"net"
	"net/url"
	"strings"
	"sync"
	"time"
)

// Proxy is a TCP proxy on a loopback address that can cut, hold and delay what passes. It loses
// no byte of a connection that it does not cut.
//
// It is our own since the library for this, toxiproxy, leaves the goroutines of a held connection
// behind when that is cut, and waits for ever to hold one whose reader has stopped reading.
type Proxy struct {
	// Addr is the host:port that clients dial instead of the upstream; it stays the same.
	Addr string

	t        T
	upstream string
	requests gate
	answers  gate

	mu       sync.Mutex
	listener net.Listener
	links    map[*link]struct{}
	work     sync.WaitGroup
}

// NewProxy starts a proxy in front of upstream, a host:port or a URL. It ends with the test.
func NewProxy(t T, upstream string) *Proxy {
	t.Helper()
	address, err := freeAddress()
	if err != nil {
		t.Fatalf("start proxy: %v", err)
	}
	p := &Proxy{Addr: address, t: t, upstream: upstream, links: map[*link]struct{}{}}
	p.requests.init()
	p.answers.init()
	p.Heal()
	t.Cleanup(p.Cut)
	return p
}

// URL returns the upstream's URL with the proxy in its place.
func (p *Proxy) URL() string { return strings.Replace(p.upstream, hostPort(p.upstream), p.Addr, 1) }

// Cut refuses new connections and breaks all that there are, both ways.
func (p *Proxy) Cut() {
	p.mu.Lock()
	if p.listener != nil {
		_ = p.listener.Close()
		p.listener = nil
	}
	for l := range p.links {
		l.close()
	}
	p.mu.Unlock()
	p.work.Wait()
}

// Heal accepts connections again. What was held or delayed still is.
func (p *Proxy) Heal() {
	p.t.Helper()
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.listener != nil {
		return
	}
	listener, err := net.Listen("tcp", p.Addr)
	if err != nil {
		p.t.Fatalf("start proxy: %v", err)
		return
	}
	p.listener = listener
	p.work.Go(func() { p.accept(listener) })
}

// HoldAnswers lets requests pass and keeps back what the upstream answers.
func (p *Proxy) HoldAnswers() { p.answers.hold(true) }

// ReleaseAnswers ends HoldAnswers: what was kept back is delivered.
func (p *Proxy) ReleaseAnswers() { p.answers.hold(false) }

// HoldRequests keeps back what clients send. Together with HoldAnswers it is a network that
// swallows everything and tells nobody.
func (p *Proxy) HoldRequests() { p.requests.hold(true) }

// ReleaseRequests ends HoldRequests: what was kept back is delivered.
func (p *Proxy) ReleaseRequests() { p.requests.hold(false) }

// Delay delivers everything d later, each way; 0 ends it.
func (p *Proxy) Delay(d time.Duration) {
	p.requests.slow(d)
	p.answers.slow(d)
}

func (p *Proxy) accept(listener net.Listener) {
	for {
		client, err := listener.Accept()
		if err != nil {
			return
		}
		p.work.Go(func() { p.serve(listener, client) })
	}
}

func (p *Proxy) serve(listener net.Listener, client net.Conn) {
	server, err := net.Dial("tcp", hostPort(p.upstream))
	if err != nil {
		_ = client.Close()
		return
	}
	l := &link{client: client, server: server, cut: make(chan struct{})}
	if !p.add(listener, l) {
		l.close()
		return
	}
	var ways sync.WaitGroup
	ways.Go(func() { l.pass(server, client, &p.requests) })
	ways.Go(func() { l.pass(client, server, &p.answers) })
	ways.Wait()
	p.mu.Lock()
	delete(p.links, l)
	p.mu.Unlock()
	l.close()
}

// add reports whether the proxy still listens as it did when the connection came.
func (p *Proxy) add(listener net.Listener, l *link) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.listener != listener {
		return false
	}
	p.links[l] = struct{}{}
	return true
}

// link is one connection through the proxy.
type link struct {
	client, server net.Conn
	cut            chan struct{}
	once           sync.Once
}

func (l *link) close() {
	l.once.Do(func() {
		close(l.cut)
		_ = l.client.Close()
		_ = l.server.Close()
	})
}

// chunk is some bytes and when they came; no bytes are the end of the stream.
type chunk struct {
	bytes []byte
	at    time.Time
}

// pass moves bytes from one side to the other through the gate until the stream ends.
func (l *link) pass(to, from net.Conn, g *gate) {
	const window = 256
	chunks := make(chan chunk, window)
	var reader sync.WaitGroup
	reader.Go(func() { l.read(from, chunks) })
	defer reader.Wait()
	for c := range chunks {
		if !g.wait(c.at, l.cut) {
			return
		}
		if len(c.bytes) == 0 {
			if half, ok := to.(*net.TCPConn); ok {
				_ = half.CloseWrite()
			}
			return
		}
		if _, err := to.Write(c.bytes); err != nil {
			l.close()
			return
		}
	}
}

// read fills chunks until the stream ends; it closes chunks only when the link is cut.
func (l *link) read(from net.Conn, chunks chan<- chunk) {
	const size = 16 << 10
	for {
		buffer := make([]byte, size)
		n, err := from.Read(buffer)
		if n > 0 && !l.push(chunks, chunk{bytes: buffer[:n], at: time.Now()}) {
			return
		}
		if errors.Is(err, io.EOF) {
			l.push(chunks, chunk{at: time.Now()})
			return
		}
		if err != nil {
			l.close()
			close(chunks)
			return
		}
	}
}

func (l *link) push(chunks chan<- chunk, c chunk) bool {
	select {
	case chunks <- c:
		return true
	case <-l.cut:
		close(chunks)
		return false
	}
}

// gate is what one direction of all connections has to pass.
type gate struct {
	mu      sync.Mutex
	held    bool
	delay   time.Duration
	changed chan struct{}
}

func (g *gate) init() { g.changed = make(chan struct{}) }

func (g *gate) hold(held bool) { g.change(func() { g.held = held }) }

func (g *gate) slow(d time.Duration) { g.change(func() { g.delay = d }) }

func (g *gate) change(set func()) {
	g.mu.Lock()
	defer g.mu.Unlock()
	set()
	close(g.changed)
	g.changed = make(chan struct{})
}

// wait returns true when what came at that time may pass, false when the link was cut.
func (g *gate) wait(at time.Time, cut <-chan struct{}) bool {
	for {
		g.mu.Lock()
		held, due, changed := g.held, time.Until(at.Add(g.delay)), g.changed
		g.mu.Unlock()
		if !held && due <= 0 {
			return true
		}
		var ripe <-chan time.Time
		if !held {
			ripe = time.After(due)
		}
		select {
		case <-ripe:
		case <-changed:
		case <-cut:
			return false
		}
	}
}

// hostPort returns the host:port of a URL, or of an address that is one already.
func hostPort(address string) string {
	if u, err := url.Parse(address); err == nil && u.Host != "" {
		return u.Host
	}
	return address
}
