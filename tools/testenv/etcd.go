package testenv

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"sync"
	"time"
)

// startLimit bounds a server's start; a busy machine needs a small part of it.
const startLimit = 2 * time.Minute

// EtcdServer is a running etcd.
type EtcdServer struct {
	// Endpoints are its client URLs or host:port addresses.
	Endpoints []string
}

// Etcd returns the etcd that all tests of this process share; use a key prefix of your own.
// It fails the test where no server can be had.
func Etcd(t T) *EtcdServer {
	t.Helper()
	server, err := shared.get()
	if err != nil {
		t.Fatalf("%v", err)
	}
	return server
}

// EtcdNode is a private etcd whose life the test controls. Methods fail the test on error.
type EtcdNode struct {
	EtcdServer

	t    T
	host host
}

// StartEtcd starts a private etcd with an empty store; args are added to its command line.
// It is removed when the test ends. Addresses in the environment do not count here: a server of
// someone else's must not be killed.
func StartEtcd(t T, args ...string) *EtcdNode {
	t.Helper()
	s := readSettings()
	if s.way == wayAddress {
		s.way = ""
	}
	h, err := launch(t.Context(), s, t.TempDir(), args)
	if err != nil {
		t.Fatalf("%v", err)
	}
	t.Cleanup(func() {
		if err := h.remove(); err != nil {
			t.Logf("remove etcd: %v", err)
		}
	})
	return &EtcdNode{EtcdServer: EtcdServer{Endpoints: []string{h.endpoint()}}, t: t, host: h}
}

// Stop ends the server in good order, keeping its data.
func (n *EtcdNode) Stop() { n.t.Helper(); n.must("stop", n.host.stop()) }

// Kill ends the server as a crash would, keeping what it had written to disk.
func (n *EtcdNode) Kill() { n.t.Helper(); n.must("kill", n.host.kill()) }

// Pause freezes the server: connections stay, nothing is answered.
func (n *EtcdNode) Pause() { n.t.Helper(); n.must("pause", n.host.pause()) }

// Resume ends a Pause.
func (n *EtcdNode) Resume() { n.t.Helper(); n.must("resume", n.host.resume()) }

// Restart starts a stopped or killed server again, on the same address and data; one that
// runs is killed first. It returns when the server is healthy.
func (n *EtcdNode) Restart() {
	n.t.Helper()
	n.must("restart", n.host.kill())
	n.must("restart", start(n.t.Context(), n.host))
}

func (n *EtcdNode) must(act string, err error) {
	n.t.Helper()
	if err != nil {
		n.t.Fatalf("%s etcd: %v", act, err)
	}
}

// host is one etcd, wherever it runs. Stopping or killing what does not run is no error.
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

// sharedEtcd is the server of [Etcd]. One that could not be had once is not tried again.
type sharedEtcd struct {
	mu     sync.Mutex
	tried  bool
	server *EtcdServer
	err    error
	host   host
}

//nolint:gochecknoglobals // The server is shared by the tests of one process; only a global is.
var shared sharedEtcd

func (s *sharedEtcd) get() (*EtcdServer, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.tried {
		s.tried = true
		s.server, s.err = s.find(readSettings())
	}
	return s.server, s.err
}

func (s *sharedEtcd) find(from settings) (*EtcdServer, error) {
	if from.allows(wayAddress) && len(from.etcd) > 0 {
		return &EtcdServer{Endpoints: from.etcd}, nil
	}
	// The server outlives the test that needs it first, so no test's context bounds it.
	h, err := launch(context.Background(), from, "", nil)
	if err != nil {
		return nil, err
	}
	s.host = h
	return &EtcdServer{Endpoints: []string{s.host.endpoint()}}, nil
}

func (s *sharedEtcd) stop() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.host == nil {
		return
	}
	if err := s.host.remove(); err != nil {
		fmt.Fprintln(os.Stderr, "testenv: remove etcd:", err)
	}
	s.tried, s.server, s.err, s.host = false, nil, nil, nil
}

// launch starts an etcd by the first way that is allowed and works. A local one keeps its
// data in dir, or in a new folder if that is empty.
func launch(ctx context.Context, s settings, dir string, args []string) (host, error) {
	ways := []struct {
		name string
		open func(context.Context, settings, string, []string) (host, error)
	}{
		{wayDocker, newContainer},
		{wayLocal, newProcess},
	}
	failed := errors.New("no etcd for this test: set " + envEtcd + " to the address of one, or " +
		"start Docker (and run `make images`), or install Go so that one can be built")
	for _, way := range ways {
		if !s.allows(way.name) {
			continue
		}
		h, err := way.open(ctx, s, dir, args)
		if err == nil {
			if err = start(ctx, h); err == nil {
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
func start(ctx context.Context, h host) error {
	ctx, cancel := context.WithTimeout(ctx, startLimit)
	defer cancel()
	if err := h.start(ctx); err != nil {
		return err
	}
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		err := healthy(ctx, h.endpoint())
		if err == nil {
			return nil
		}
		if ended := h.ended(); ended != nil {
			return fmt.Errorf("etcd ended at its start: %w\n%s", ended, h.log())
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return fmt.Errorf("etcd is not healthy: %w: %w\n%s", ctx.Err(), err, h.log())
		}
	}
}

// healthy asks etcd whether it has a leader and can answer reads.
func healthy(ctx context.Context, endpoint string) error {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, endpoint+"/health", http.NoBody)
	if err != nil {
		return fmt.Errorf("make health request: %w", err)
	}
	// A transport of its own, without idle connections, leaves no goroutine behind.
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := client.Do(req)
	if err != nil {
		return fmt.Errorf("ask health: %w", err)
	}
	if err := resp.Body.Close(); err != nil {
		return fmt.Errorf("read health: %w", err)
	}
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("health is %s", resp.Status)
	}
	return nil
}
