package locks_test

import (
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"errors"
	"fmt"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/fencelock/fencelock/adapters/client"
	"github.com/fencelock/fencelock/adapters/rpc"
	"github.com/fencelock/fencelock/apps/payout-executor/internal/locks"
	"github.com/fencelock/fencelock/contracts/parity/reference"
	"github.com/fencelock/fencelock/core/clock"
	"github.com/fencelock/fencelock/core/fence"
	"github.com/fencelock/fencelock/core/lock"
	"github.com/fencelock/fencelock/core/port"
	"github.com/fencelock/fencelock/core/service"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

type silent struct{}

func (silent) Observe(context.Context, port.Event) {}

// serve is a lock server over a store in memory.
func serve(t *testing.T, signer rpc.Signer) (url string) {
	t.Helper()
	world := reference.New()
	t.Cleanup(world.Close)
	return serveWorld(t, world, signer)
}

func serveWorld(t *testing.T, world *reference.World, signer rpc.Signer) (url string) {
	t.Helper()
	svc := service.New(world.Client().Backend(), service.Config{}, clock.Boot{}, silent{})
	svc.Start()
	t.Cleanup(svc.Close)
	server := httptest.NewServer(rpc.New(rpc.Config{
		Service: svc, Clock: clock.Boot{}, Ready: svc.Ping, Signer: signer,
		Info: rpc.Info{Version: "test", SessionTTL: lock.DefaultTTL, SafetyMargin: client.DefaultSafetyMargin},
	}))
	t.Cleanup(server.Close)
	return server.URL
}

// TestATokenTravelsInTheFormThatTheServerGives: a resource that has a public key believes no other.
func TestATokenTravelsInTheFormThatTheServerGives(t *testing.T) {
	t.Parallel()
	public, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	verifier, err := fence.NewVerifier(public)
	if err != nil {
		t.Fatal(err)
	}
	for name, way := range map[string]struct {
		signer rpc.Signer
		reader fence.Reader
	}{
		"signed": {fence.NewSigner(private), verifier},
		"bare":   {nil, fence.Unsigned{}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c, err := client.New([]string{serve(t, way.signer)})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = c.Close() })
			l := locks.New(c, "test", time.Minute)
			t.Cleanup(func() { _ = l.Close(context.WithoutCancel(t.Context())) })
			held, err := l.TryAcquire(t.Context(), "alice")
			if err != nil {
				t.Fatal(err)
			}
			key, err := lock.NewKey("", locks.Key("alice"))
			if err != nil {
				t.Fatal(err)
			}
			token := held.Token()
			if got, err := way.reader.Read(key, token.Text); err != nil || got != token.Number {
				t.Errorf("%q is read as %d, %v; want %d", token.Text, got, err, token.Number)
			}
		})
	}
}

func newLocks(t *testing.T, url string) *locks.Locks {
	t.Helper()
	c, err := client.New([]string{url})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	l := locks.New(c, "test", time.Minute)
	t.Cleanup(func() { _ = l.Close(context.WithoutCancel(t.Context())) })
	return l
}

// TestOneSessionPerProcess: many that need it at once share one.
func TestOneSessionPerProcess(t *testing.T) {
	t.Parallel()
	world := reference.New()
	t.Cleanup(world.Close)
	l := newLocks(t, serveWorld(t, world, nil))
	var asking sync.WaitGroup
	for n := range 20 {
		asking.Go(func() {
			if _, err := l.TryAcquire(t.Context(), fmt.Sprint("a", n)); err != nil {
				t.Error(err)
			}
		})
	}
	asking.Wait()
	if err := l.Ping(t.Context()); err != nil {
		t.Error(err)
	}
	sessions, _, err := world.Client().Sessions(t.Context(), port.Page{Size: 10})
	if err != nil || len(sessions) != 1 {
		t.Errorf("%d sessions, %v", len(sessions), err)
	}
	if _, err := l.TryAcquire(t.Context(), "a0"); !errors.Is(err, lock.ErrHeld) {
		t.Errorf("a lock that is held: %v", err)
	}
	if err := l.Close(t.Context()); err != nil {
		t.Error(err)
	}
	sessions, _, err = world.Client().Sessions(t.Context(), port.Page{Size: 10})
	if err != nil || len(sessions) != 0 {
		t.Errorf("%d sessions, %v", len(sessions), err)
	}
}

// TestDrainingEndsTheAskingForLocks: also of those who wait for a lock service that is away. What is held stays held.
func TestDrainingEndsTheAskingForLocks(t *testing.T) {
	t.Parallel()
	l := newLocks(t, serve(t, nil))
	held, err := l.TryAcquire(t.Context(), "a")
	if err != nil {
		t.Fatal(err)
	}
	l.Drain()
	if _, err := l.TryAcquire(t.Context(), "b"); err == nil {
		t.Error("a lock was given")
	}
	if err := held.CheckStillHeld(); err != nil {
		t.Error(err)
	}
	away := newLocks(t, "http://127.0.0.1:1")
	asked := make(chan error, 1)
	go func() {
		_, err := away.TryAcquire(t.Context(), "a")
		asked <- err
	}()
	away.Drain()
	if err := <-asked; err == nil {
		t.Error("a lock was given")
	}
}
