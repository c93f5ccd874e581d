package client_test

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"testing"
	"time"

	"connectrpc.com/connect"
	"go.uber.org/goleak"

	"github.com/fencelock/fencelock/adapters/client"
	"github.com/fencelock/fencelock/adapters/rpc"
	v1 "github.com/fencelock/fencelock/contracts/api/fencelock/v1"
	"github.com/fencelock/fencelock/contracts/parity/reference"
	"github.com/fencelock/fencelock/core/clock"
	"github.com/fencelock/fencelock/core/lock"
	"github.com/fencelock/fencelock/core/port"
	"github.com/fencelock/fencelock/core/service"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// eventually bounds what must happen some time, however busy the machine is.
const eventually = 30 * time.Second

type silent struct{}

func (silent) Observe(context.Context, port.Event) {}

// realServer serves a world as a lock server does, over TCP.
func realServer(t *testing.T, world *reference.World) (address string, drain func()) {
	t.Helper()
	return adjustedServer(t, world, func(*rpc.Config) {})
}

// leasingServer caps grants whose acquirer names no lease.
func leasingServer(t *testing.T, world *reference.World, lease time.Duration) (address string, drain func()) {
	t.Helper()
	return adjustedServer(t, world, func(cfg *rpc.Config) { cfg.DefaultLease = lease })
}

func adjustedServer(t *testing.T, world *reference.World, adjust func(*rpc.Config)) (address string, drain func()) {
	t.Helper()
	address, drain, stop, err := serve(t.Context(), world, adjust)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(stop)
	return address, drain
}

func serve(ctx context.Context, world *reference.World, adjust func(*rpc.Config)) (
	address string, drain, stop func(), err error,
) {
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return "", nil, nil, err
	}
	svc := service.New(world.Client().Backend(), service.Config{}, clock.Boot{}, silent{})
	svc.Start()
	cfg := rpc.Config{
		Service: svc, Clock: clock.Boot{}, Ready: svc.Ping,
		Info: rpc.Info{Version: "test", SessionTTL: lock.DefaultTTL, SafetyMargin: client.DefaultSafetyMargin},
	}
	adjust(&cfg)
	handler := rpc.New(cfg)
	server := rpc.NewServer(handler, slog.New(slog.DiscardHandler))
	served := make(chan struct{})
	go func() {
		defer close(served)
		_ = server.Serve(listener)
	}()
	return "http://" + listener.Addr().String(), handler.Drain, func() {
		_ = server.Close()
		<-served
		svc.Close()
	}, nil
}

func realClient(t *testing.T, endpoints []string, opts ...client.Option) *client.Client {
	t.Helper()
	c, err := client.New(endpoints, opts...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

func ways() map[string][]client.Option {
	return map[string][]client.Option{"over the stream": nil, "by unary calls": {client.WithUnaryOnly()}}
}

// onWire waits until the client uses what the way promises.
func onWire(t *testing.T, c *client.Client, opts []client.Option) {
	t.Helper()
	if len(opts) > 0 {
		return
	}
	until(t, c.Linked)
}

func until(t *testing.T, ok func() bool) {
	t.Helper()
	ticker := time.NewTicker(5 * time.Millisecond)
	defer ticker.Stop()
	limit := time.After(eventually)
	for !ok() {
		select {
		case <-ticker.C:
		case <-limit:
			t.Fatal("it never happened")
		}
	}
}

func TestRealServer(t *testing.T) {
	t.Parallel()
	for name, opts := range ways() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			world := reference.New()
			t.Cleanup(world.Close)
			endpoint, _ := realServer(t, world)
			c := realClient(t, []string{endpoint}, opts...)
			s, err := c.OpenSession(t.Context(), "first", client.WithTTL(time.Minute))
			if err != nil {
				t.Fatal(err)
			}
			onWire(t, c, opts)
			exerciseLock(t, c, s)
			exerciseWait(t, c, s)
			if released, err := s.Close(t.Context()); released != 0 || err != nil {
				t.Errorf("Close = %d, %v", released, err)
			}
		})
	}
}

// exerciseLock takes a lock, is refused it a second time, extends and releases it.
func exerciseLock(t *testing.T, c *client.Client, s *client.Session) {
	t.Helper()
	l, err := s.TryAcquire(t.Context(), "k", client.WithLease(time.Minute))
	if err != nil {
		t.Fatal(err)
	}
	var held *client.HeldError
	if _, err := s.TryAcquire(t.Context(), "k"); !errors.As(err, &held) || held.Owner != "first" || held.Token != l.Token() {
		t.Errorf("second acquire: %v, want held by first", err)
	}
	if err := l.Extend(t.Context(), 2*time.Minute); err != nil {
		t.Error(err)
	}
	if left := l.Deadline(); left <= 0 || left > 42*time.Second { // the session's: 60s x 0.7
		t.Errorf("time left = %v, want at most 42s", left)
	}
	if outcome, err := l.Release(t.Context()); outcome != client.Released || err != nil {
		t.Errorf("Release = %v, %v", outcome, err)
	}
	_, err = c.Locks().Release(t.Context(), connect.NewRequest(&v1.ReleaseRequest{
		Key: "k", SessionId: s.ID().Reveal(), Token: -1,
	}))
	var e *lock.Error
	if !errors.As(client.Translate(err), &e) || e.Code != lock.CodeInvalid || e.Field != "token" {
		t.Errorf("raw call: %v, want an invalid token", client.Translate(err))
	}
}

// exerciseWait hands a key from one session to another that stands in line.
func exerciseWait(t *testing.T, c *client.Client, s *client.Session) {
	t.Helper()
	l, err := s.TryAcquire(t.Context(), "queue")
	if err != nil {
		t.Fatal(err)
	}
	released := make(chan error, 1)
	go func() {
		for {
			info, err := c.Locks().Inspect(t.Context(), connect.NewRequest(&v1.InspectRequest{Key: "queue"}))
			if err != nil || info.Msg.GetWaiters() > 0 {
				break
			}
		}
		_, err := l.Release(t.Context())
		released <- err
	}()
	err = c.Do(t.Context(), "queue", func(ctx context.Context, token lock.Token) error {
		if token <= l.Token() {
			t.Errorf("token %d is not above %d", token, l.Token())
		}
		return ctx.Err()
	}, client.WithOwner("second"), client.WithWait(eventually))
	if err := errors.Join(err, <-released); err != nil {
		t.Error(err)
	}
}

func TestRealServerTellsOfARevocation(t *testing.T) {
	t.Parallel()
	for name, opts := range ways() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			world := reference.New()
			t.Cleanup(world.Close)
			endpoint, _ := realServer(t, world)
			c := realClient(t, []string{endpoint}, opts...)
			s, err := c.OpenSession(t.Context(), "deposed", client.WithTTL(3*time.Second))
			if err != nil {
				t.Fatal(err)
			}
			onWire(t, c, opts)
			l, err := s.TryAcquire(t.Context(), "k")
			if err != nil {
				t.Fatal(err)
			}
			_, err = c.Admin().Revoke(t.Context(), connect.NewRequest(&v1.RevokeRequest{
				Key: "k", Operator: "op", Reason: "it is a test",
			}))
			if err != nil {
				t.Fatal(err)
			}
			select {
			case <-l.Context().Done():
			case <-time.After(eventually):
				t.Fatal("the deposed holder never learned of it")
			}
			wantCode(t, context.Cause(l.Context()), lock.CodeLost)
		})
	}
}

func TestRealServerLearnsOfACancelledWait(t *testing.T) {
	t.Parallel()
	for name, opts := range ways() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			world := reference.New()
			t.Cleanup(world.Close)
			endpoint, _ := realServer(t, world)
			c := realClient(t, []string{endpoint}, opts...)
			s, err := c.OpenSession(t.Context(), "waiter", client.WithTTL(time.Minute))
			if err != nil {
				t.Fatal(err)
			}
			onWire(t, c, opts)
			if _, err := s.TryAcquire(t.Context(), "k"); err != nil {
				t.Fatal(err)
			}
			waiters := func(n int32) func() bool {
				return func() bool {
					info, err := c.Locks().Inspect(t.Context(), connect.NewRequest(&v1.InspectRequest{Key: "k"}))
					return err == nil && info.Msg.GetWaiters() == n
				}
			}
			ctx, cancel := context.WithCancel(t.Context())
			done := make(chan error, 1)
			go func() {
				_, err := s.Acquire(ctx, "k")
				done <- err
			}()
			until(t, waiters(1))
			cancel()
			if err := <-done; !errors.Is(err, context.Canceled) {
				t.Errorf("error = %v, want cancelled", err)
			}
			until(t, waiters(0))
		})
	}
}

func TestRealServersDefaultLeaseIsHeeded(t *testing.T) {
	t.Parallel()
	for name, opts := range ways() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			world := reference.New()
			t.Cleanup(world.Close)
			endpoint, _ := leasingServer(t, world, 2*time.Minute)
			c := realClient(t, []string{endpoint}, opts...)
			s, err := c.OpenSession(t.Context(), "capped", client.WithTTL(lock.MaxTTL))
			if err != nil {
				t.Fatal(err)
			}
			onWire(t, c, opts)
			l, err := s.TryAcquire(t.Context(), "k")
			if err != nil {
				t.Fatal(err)
			}
			usable := func(lease time.Duration) time.Duration { return lease - lease*3/10 }
			if left := l.Deadline(); left <= 0 || left > usable(2*time.Minute) {
				t.Errorf("time left = %v, want at most 70%% of 2m", left)
			}
			if err := l.Extend(t.Context(), 4*time.Minute); err != nil {
				t.Fatal(err)
			}
			if left := l.Deadline(); left <= usable(2*time.Minute) || left > usable(4*time.Minute) {
				t.Errorf("time left after the extension = %v, want 70%% of 4m", left)
			}
		})
	}
}

func TestRealServersShareSessions(t *testing.T) {
	t.Parallel()
	world := reference.New()
	t.Cleanup(world.Close)
	first, drain := realServer(t, world)
	second, _ := realServer(t, world)
	c := realClient(t, []string{first, second})
	s, err := c.OpenSession(t.Context(), "mover", client.WithTTL(time.Minute))
	if err != nil {
		t.Fatal(err)
	}
	onWire(t, c, nil)
	l, err := s.TryAcquire(t.Context(), "k")
	if err != nil {
		t.Fatal(err)
	}
	drain()
	until(t, func() bool { return c.Linked() && c.Preferred() == 1 })
	if outcome, err := l.Release(t.Context()); outcome != client.Released || err != nil {
		t.Errorf("Release = %v, %v", outcome, err)
	}
}
