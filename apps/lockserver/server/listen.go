package server

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"sync"
)

// endpoint is an http.Server on an address of its own.
type endpoint struct {
	server *http.Server
	addr   string
	// failed is told if serving ends by itself.
	failed func(error)

	mu       sync.Mutex
	listener net.Listener
	done     chan struct{}
}

func newEndpoint(server *http.Server, addr string, failed func(error)) *endpoint {
	return &endpoint{server: server, addr: addr, failed: failed}
}

// start listens, so that after it returns connections are accepted.
func (e *endpoint) start(ctx context.Context) error {
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", e.addr)
	if err != nil {
		return fmt.Errorf("listen: %w", err)
	}
	e.mu.Lock()
	e.listener, e.done = listener, make(chan struct{})
	e.mu.Unlock()
	go func() {
		defer close(e.done)
		if err := e.server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
			e.failed(fmt.Errorf("serve %s: %w", listener.Addr(), err))
		}
	}()
	return nil
}

// stop waits for requests in flight until ctx ends, and then cuts them.
func (e *endpoint) stop(ctx context.Context) {
	if err := e.server.Shutdown(ctx); err != nil {
		_ = e.server.Close()
	}
	<-e.done
}

// address is where it listens: the host as configured, and the port, which for port 0 the system chose.
func (e *endpoint) address() string {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.listener == nil {
		return e.addr
	}
	listens := e.listener.Addr().String()
	host, _, err := net.SplitHostPort(e.addr)
	if err != nil || host == "" {
		return listens
	}
	_, port, err := net.SplitHostPort(listens)
	if err != nil {
		return listens
	}
	return net.JoinHostPort(host, port)
}
