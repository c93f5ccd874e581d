package endpoint

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"sync"
)

// Endpoint is an http.Server on an address of its own.
type Endpoint struct {
	server *http.Server
	addr   string
	failed func(error)

	mu       sync.Mutex
	listener net.Listener
	done     chan struct{}
}

// New prepares a server for an address, host:port. failed is told if serving ends by itself.
func New(server *http.Server, addr string, failed func(error)) *Endpoint {
	return &Endpoint{server: server, addr: addr, failed: failed}
}

// Start listens, so that after it returns connections are accepted. ctx bounds nothing but the listening.
func (e *Endpoint) Start(ctx context.Context) error {
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

// Stop waits for requests in flight until ctx ends, and then cuts them.
func (e *Endpoint) Stop(ctx context.Context) {
	if err := e.server.Shutdown(ctx); err != nil {
		_ = e.server.Close()
	}
	<-e.done
}

// Address is where it listens: the host as configured, and the port, which for port 0 the system chose.
func (e *Endpoint) Address() string {
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

// Check refuses the value of a key that is not host:port.
func Check(key, addr string) error {
	if _, _, err := net.SplitHostPort(addr); err != nil {
		return fmt.Errorf("%s: %q is not host:port", key, addr)
	}
	return nil
}

// IsOpen reports whether other machines may reach the address.
func IsOpen(addr string) bool {
	host, _, _ := net.SplitHostPort(addr)
	ip := net.ParseIP(host)
	return host != "localhost" && (ip == nil || !ip.IsLoopback())
}
