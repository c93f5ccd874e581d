package testenv

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"
)

// startLimit bounds a server's start; a busy machine needs a small part of it.
const startLimit = 2 * time.Minute

// program is a kind of server that runs as a process: what differs from one to another. A value of
// it is for one server.
type program interface {
	// name is how messages call it.
	name() string
	// endpoint is what clients are told of a server at the address, a host:port.
	endpoint(address string) string
	// healthy asks the server whether it serves.
	healthy(ctx context.Context, endpoint string) error
	// local plans a process at the address that keeps all it has in dir, and prepares dir.
	local(ctx context.Context, version, dir, address string) (local, error)
}

// store is a program that also runs in a container. An empty version is its default.
type store interface {
	program

	// advice says how to get one.
	advice() string
	// images are the places of an image: the one that `make images` builds, and official ones.
	images(version string) (built string, official []string)
	// contained plans a container that clients reach at the endpoint.
	contained(endpoint string) contained
}

// host is one server, wherever it runs. Stopping or killing what does not run is no error.
type host interface {
	endpoint() string
	start(ctx context.Context) error
	stop() error
	kill() error
	pause() error
	resume() error
	// remove ends it and deletes its data.
	remove() error
	// ended returns why it does not run; nil while it does.
	ended() error
	// log is the end of what it printed.
	log() string
}

// Node is the life of a private server. Its methods fail the test on error.
type Node struct {
	t       T
	program program
	host    host
}

// startNode starts a private server that is removed when the test ends. Addresses in the environment
// do not count here: a server of someone else's must not be killed.
func startNode(t T, s settings, p store) Node {
	t.Helper()
	if s.way == wayAddress {
		s.way = ""
	}
	h, err := launch(t.Context(), s, p)
	if err != nil {
		t.Fatalf("%v", err)
	}
	t.Cleanup(func() {
		if err := h.remove(); err != nil {
			t.Logf("remove %s: %v", p.name(), err)
		}
	})
	return Node{t: t, program: p, host: h}
}

// Stop ends the server in good order, keeping its data.
func (n *Node) Stop() { n.t.Helper(); n.must("stop", n.host.stop()) }

// Kill ends the server with all its processes as a crash would, keeping what it had written to disk.
func (n *Node) Kill() { n.t.Helper(); n.must("kill", n.host.kill()) }

// Pause freezes the server: connections stay, nothing is answered.
func (n *Node) Pause() { n.t.Helper(); n.must("pause", n.host.pause()) }

// Resume ends a Pause.
func (n *Node) Resume() { n.t.Helper(); n.must("resume", n.host.resume()) }

// Restart starts a stopped or killed server again, on the same address and data; one that
// runs is killed first. It returns when the server is healthy.
func (n *Node) Restart() {
	n.t.Helper()
	n.must("restart", n.host.kill())
	n.must("restart", start(n.t.Context(), n.program, n.host))
}

func (n *Node) must(act string, err error) {
	n.t.Helper()
	if err != nil {
		n.t.Fatalf("%s %s: %v", act, n.program.name(), err)
	}
}

// shared is a server that all tests of this process share. One that could not be had once is not
// tried again.
type shared[S any] struct {
	// find returns the server, and its host if it was started for us.
	find func() (S, host, error)

	mu     sync.Mutex
	tried  bool
	server S
	host   host
	err    error
}

func (s *shared[S]) get(t T) S {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.tried {
		s.tried = true
		s.server, s.host, s.err = s.find()
	}
	if s.err != nil {
		t.Fatalf("%v", s.err)
	}
	return s.server
}

func (s *shared[S]) stop() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.host != nil {
		if err := s.host.remove(); err != nil {
			fmt.Fprintln(os.Stderr, "testenv: remove shared server:", err)
		}
	}
	var none S
	s.tried, s.server, s.host, s.err = false, none, nil, nil
}

// launch starts a server by the first way that is allowed and works.
func launch(ctx context.Context, s settings, p store) (host, error) {
	ways := []struct {
		name string
		open func() (host, error)
	}{
		{wayDocker, func() (host, error) { return newContainer(ctx, s.version, p) }},
		{wayLocal, func() (host, error) { return newProcess(ctx, s.version, p) }},
	}
	failed := fmt.Errorf("no %s for this test: %s", p.name(), p.advice())
	for _, way := range ways {
		if !s.allows(way.name) {
			continue
		}
		h, err := way.open()
		if err == nil {
			if err = start(ctx, p, h); err == nil {
				return h, nil
			}
			err = errors.Join(err, h.remove())
		}
		failed = fmt.Errorf("%w\n%s: %w", failed, way.name, err)
	}
	if s.way != "" {
		failed = fmt.Errorf("%w\n(%s=%s)", failed, envWay, s.way)
	}
	return nil, failed
}

// start starts h and waits until it is healthy.
func start(ctx context.Context, p program, h host) error {
	ctx, cancel := context.WithTimeout(ctx, startLimit)
	defer cancel()
	if err := h.start(ctx); err != nil {
		return err
	}
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		err := p.healthy(ctx, h.endpoint())
		if err == nil {
			return nil
		}
		if ended := h.ended(); ended != nil {
			return fmt.Errorf("%s ended at its start: %w\n%s", p.name(), ended, h.log())
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return fmt.Errorf("%s is not healthy: %w: %w\n%s", p.name(), ctx.Err(), err, h.log())
		}
	}
}
