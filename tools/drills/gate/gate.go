package gate

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"sync"
	"time"
)

// Gate is a reverse proxy on loopback before one service.
type Gate struct {
	proxy  *httputil.ReverseProxy
	server *http.Server
	addr   string
	served chan struct{}

	mu    sync.Mutex
	holds []*Hold
	calls []Call
}

// Open starts a gate before the service at the URL target. Close it.
func Open(target string) (*Gate, error) {
	to, err := url.Parse(target)
	if err != nil {
		return nil, fmt.Errorf("read URL of the service: %w", err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("listen: %w", err)
	}
	transport := &http.Transport{Protocols: plain(), MaxIdleConnsPerHost: 64, IdleConnTimeout: time.Minute}
	quiet := log.New(io.Discard, "", 0) // a service that is gone, or a caller, is what drills are about
	g := &Gate{
		proxy: &httputil.ReverseProxy{
			Rewrite:   func(r *httputil.ProxyRequest) { r.SetURL(to) },
			Transport: transport, ErrorLog: quiet,
		},
		addr:   listener.Addr().String(),
		served: make(chan struct{}),
	}
	g.server = &http.Server{Handler: g, Protocols: plain(), ReadHeaderTimeout: time.Minute, ErrorLog: quiet}
	g.server.RegisterOnShutdown(transport.CloseIdleConnections)
	go func() {
		defer close(g.served)
		_ = g.server.Serve(listener)
	}()
	return g, nil
}

// plain is HTTP without TLS: version 1, and 2 for who begins with it.
func plain() *http.Protocols {
	p := new(http.Protocols)
	p.SetHTTP1(true)
	p.SetUnencryptedHTTP2(true)
	return p
}

// URL is what callers dial instead of the service.
func (g *Gate) URL() string { return "http://" + g.addr }

// closeLimit bounds how long calls under way may take to end.
const closeLimit = 5 * time.Second

// Close drops what is held and ends the gate.
func (g *Gate) Close() error {
	g.mu.Lock()
	holds := g.holds
	g.holds = nil
	g.mu.Unlock()
	for _, h := range holds {
		h.Drop()
	}
	ctx, cancel := context.WithTimeout(context.Background(), closeLimit)
	defer cancel()
	err := g.server.Shutdown(ctx)
	if err != nil {
		err = g.server.Close()
	}
	<-g.served
	if err != nil {
		return fmt.Errorf("close gate: %w", err)
	}
	return nil
}

// Calls returns what has arrived so far, in order.
func (g *Gate) Calls() []Call {
	g.mu.Lock()
	defer g.mu.Unlock()
	return append([]Call(nil), g.calls...)
}

// HoldRequest keeps the first call that matches, from now on, before the service sees it.
func (g *Gate) HoldRequest(match func(Call) bool) *Hold { return g.add(newHold(match, false)) }

// HoldAnswer keeps the answer of the first call that matches, from now on, before its caller sees it.
func (g *Gate) HoldAnswer(match func(Call) bool) *Hold { return g.add(newHold(match, true)) }

func (g *Gate) add(h *Hold) *Hold {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.holds = append(g.holds, h)
	return h
}

// arrive notes a call and returns the hold that it ran into, if any.
func (g *Gate) arrive(c Call) *Hold {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.calls = append(g.calls, c)
	for _, h := range g.holds {
		if h.take(c) {
			return h
		}
	}
	return nil
}

// ServeHTTP implements http.Handler.
func (g *Gate) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		http.Error(w, "the request was cut short", http.StatusBadGateway)
		return
	}
	r.Body = io.NopCloser(bytes.NewReader(body))
	hold := g.arrive(read(r, body))
	if hold == nil {
		g.proxy.ServeHTTP(w, r)
		return
	}
	defer close(hold.done)
	if !hold.answer && !hold.keep() {
		panic(http.ErrAbortHandler) // the caller sees its connection end
	}
	kept := &answer{header: http.Header{}}
	g.proxy.ServeHTTP(kept, r.WithContext(context.WithoutCancel(r.Context())))
	hold.got = Answer{Status: kept.status, Body: kept.body.Bytes()}
	if hold.answer && !hold.keep() {
		panic(http.ErrAbortHandler)
	}
	kept.copyTo(w)
}
