package rpc_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	"connectrpc.com/connect"
	"connectrpc.com/grpchealth"
	"connectrpc.com/grpcreflect"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/fencelock/fencelock/adapters/rpc"
	fencelockv1 "github.com/fencelock/fencelock/contracts/api/fencelock/v1"
	"github.com/fencelock/fencelock/contracts/api/fencelock/v1/fencelockv1connect"
	"github.com/fencelock/fencelock/core/lock"
	"github.com/fencelock/fencelock/core/service"
)

// broken fails every acquire with err, or panics with it.
type broken struct {
	rpc.Service
	err    error
	panics bool
}

func (b *broken) Acquire(context.Context, service.AcquireRequest) (service.AcquireResult, error) {
	if b.panics {
		panic("SELECT secret")
	}
	return service.AcquireResult{}, b.err
}

var errDriver = errors.New("dial tcp 10.1.2.3:2379: SELECT secret")

// TestErrorTable checks each code of the closed set on its way out, unary and in a frame.
func TestErrorTable(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		err       error
		status    connect.Code
		code      fencelockv1.ErrorCode
		retry     bool
		ambiguous bool
		hint      time.Duration
	}{
		{err: lock.ErrLost, status: connect.CodeFailedPrecondition, code: fencelockv1.ErrorCode_ERROR_CODE_LOCK_LOST},
		{err: lock.ErrSessionDead, status: connect.CodeFailedPrecondition, code: fencelockv1.ErrorCode_ERROR_CODE_SESSION_DEAD},
		{err: lock.Contention("slow", true, errDriver), status: connect.CodeUnavailable, code: fencelockv1.ErrorCode_ERROR_CODE_CONTENTION, retry: true, ambiguous: true, hint: 250 * time.Millisecond},
		{err: fmt.Errorf("wrapped: %w", lock.ErrContention), status: connect.CodeUnavailable, code: fencelockv1.ErrorCode_ERROR_CODE_CONTENTION, retry: true, hint: 250 * time.Millisecond},
		{err: lock.ErrNotLeader, status: connect.CodeUnavailable, code: fencelockv1.ErrorCode_ERROR_CODE_NOT_LEADER, retry: true, hint: 250 * time.Millisecond},
		{err: &lock.Error{Code: lock.CodeTooManyWaiters, Message: "full", RetryAfter: time.Second}, status: connect.CodeResourceExhausted, code: fencelockv1.ErrorCode_ERROR_CODE_TOO_MANY_WAITERS, retry: true, hint: time.Second},
		{err: lock.Invalid("key", "bad"), status: connect.CodeInvalidArgument, code: fencelockv1.ErrorCode_ERROR_CODE_INVALID},
		{err: lock.ErrDenied, status: connect.CodePermissionDenied, code: fencelockv1.ErrorCode_ERROR_CODE_DENIED},
		{err: lock.ErrFencedOut, status: connect.CodeFailedPrecondition, code: fencelockv1.ErrorCode_ERROR_CODE_FENCED_OUT},
		{err: lock.ErrUnsafeStore, status: connect.CodeFailedPrecondition, code: fencelockv1.ErrorCode_ERROR_CODE_UNSAFE_STORE},
	} {
		t.Run(test.err.Error(), func(t *testing.T) {
			t.Parallel()
			framed, unary := failing(t, &broken{err: test.err})
			detail := wantError(t, unary, test.status, test.code)
			for _, d := range []*fencelockv1.ErrorDetail{detail, framed} {
				if d.GetCode() != test.code || d.GetSafeToRetry() != test.retry || d.GetAmbiguous() != test.ambiguous || d.GetRetryAfter().AsDuration() != test.hint {
					t.Errorf("detail %v", d)
				}
			}
			for _, text := range []string{unary.Error(), detail.String(), framed.String()} {
				if contains(text, "SELECT") || contains(text, "10.1.2.3") {
					t.Errorf("the driver's words crossed the wire: %s", text)
				}
			}
		})
	}
}

// failing returns what a failing acquire looks like, as a unary call and inside a frame.
func failing(t *testing.T, b *broken) (framed *fencelockv1.ErrorDetail, unary error) {
	t.Helper()
	f := newFixture(t, func(c *rpc.Config) {
		b.Service = c.Service
		c.Service = b
	})
	c := f.plain(t)
	session := c.open(t)
	op := opAcquire(1, session, "a", "r1", 0)
	_, unary = c.locks.Acquire(t.Context(), connect.NewRequest(op.GetAcquire()))
	w := c.attach(t)
	w.send(t, op)
	return next(t, w.results).GetError(), unary
}

func TestWhatIsOutsideTheClosedSetIsInternal(t *testing.T) {
	t.Parallel()
	for name, b := range map[string]*broken{
		"raw error": {err: errDriver}, "held as an error": {err: lock.ErrHeld}, "panic": {panics: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			framed, unary := failing(t, b)
			wantError(t, unary, connect.CodeInternal, fencelockv1.ErrorCode_ERROR_CODE_UNSPECIFIED)
			if framed.GetCode() != fencelockv1.ErrorCode_ERROR_CODE_CONTENTION || !framed.GetAmbiguous() {
				t.Errorf("in a frame: %v, want a retryable error of unknown outcome", framed)
			}
			for _, text := range []string{unary.Error(), framed.String()} {
				if contains(text, "SELECT") {
					t.Errorf("the driver's words crossed the wire: %s", text)
				}
			}
		})
	}
}

func TestAPanicIsReportedWithItsStack(t *testing.T) {
	t.Parallel()
	var reports atomic.Int64
	b := &broken{panics: true}
	f := newFixture(t, func(c *rpc.Config) {
		b.Service = c.Service
		c.Service = b
		c.Panicked = func(_ context.Context, procedure string, value any, stack []byte) {
			if procedure == fencelockv1connect.LockServiceAcquireProcedure && value != nil && len(stack) > 0 {
				reports.Add(1)
			}
		}
	})
	c := f.plain(t)
	_, err := c.locks.Acquire(t.Context(), connect.NewRequest(opAcquire(1, c.open(t), "a", "r1", 0).GetAcquire()))
	wantError(t, err, connect.CodeInternal, fencelockv1.ErrorCode_ERROR_CODE_UNSPECIFIED)
	if reports.Load() != 1 {
		t.Errorf("%d reports, want 1", reports.Load())
	}
}

// TestRow11ADeadlineShorterThanTheWait ends the call and takes it out of the line.
func TestRow11ADeadlineShorterThanTheWait(t *testing.T) {
	t.Parallel()
	for _, p := range protocols() {
		t.Run(p.name, func(t *testing.T) {
			t.Parallel()
			f := newFixture(t)
			c := f.client(t, p)
			holder, waiting := c.open(t), c.open(t)
			c.acquire(t, holder, heldKey, "r0")
			before := f.snapshot(t)
			ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
			defer cancel()
			_, err := c.locks.Acquire(ctx, connect.NewRequest(&fencelockv1.AcquireRequest{
				Key: heldKey, SessionId: waiting, RequestId: "r1", Wait: durationpb.New(time.Hour),
			}))
			if connect.CodeOf(err) != connect.CodeDeadlineExceeded {
				t.Fatalf("error %v, want deadline_exceeded", err)
			}
			waitFor(t, "the waiter is gone", func() bool { return f.snapshot(t) == before })
		})
	}
}

// TestRow11TheServerSaysSoItself: a raw client that only names a timeout gets the coded answer.
func TestRow11TheServerSaysSoItself(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	c := f.plain(t)
	c.acquire(t, c.open(t), heldKey, "r0")
	status, body := send(t, httpClient(t, false), f.url(), raw{
		header: map[string]string{"Connect-Timeout-Ms": "100"},
		body:   []byte(`{"key":"held","sessionId":"` + c.open(t) + `","requestId":"r1","wait":"60s"}`),
	})
	if status != http.StatusGatewayTimeout || codeOf(t, body) != "deadline_exceeded" {
		t.Errorf("%d %s", status, body)
	}
}

// TestRow45TheStoreIsDown: unavailable with a hint, never not found and never free; and it heals by itself.
func TestRow45TheStoreIsDown(t *testing.T) {
	t.Parallel()
	for _, p := range protocols() {
		t.Run(p.name, func(t *testing.T) {
			t.Parallel()
			f := newFixture(t)
			c := f.client(t, p)
			session := c.open(t)
			token := c.acquire(t, session, heldKey, "r0").GetToken()
			heal := f.link.Partition()
			for name, call := range whileDown(c, session, token) {
				detail := wantError(t, call(t.Context()), connect.CodeUnavailable, fencelockv1.ErrorCode_ERROR_CODE_CONTENTION)
				if !detail.GetSafeToRetry() || detail.GetRetryAfter().AsDuration() <= 0 {
					t.Errorf("%s: %v, want a retry hint", name, detail)
				}
			}
			f.wantHealth(t, "SERVING_STATUS_NOT_SERVING")
			info, err := c.admin.GetServerInfo(t.Context(), connect.NewRequest(&fencelockv1.GetServerInfoRequest{}))
			if err != nil || info.Msg.GetReady() {
				t.Errorf("server info: %v, %v; want not ready", info, err)
			}
			heal()
			if again := c.acquire(t, session, heldKey, "r0"); again.GetToken() != token {
				t.Errorf("after the outage: %v, want the grant under token %d", again, token)
			}
			f.wantHealth(t, "SERVING_STATUS_SERVING")
		})
	}
}

func whileDown(c api, session string, token int64) map[string]func(ctx context.Context) error {
	return map[string]func(ctx context.Context) error{
		"open": func(ctx context.Context) error {
			_, err := c.sessions.OpenSession(ctx, connect.NewRequest(&fencelockv1.OpenSessionRequest{Owner: "o"}))
			return err
		},
		"heartbeat": func(ctx context.Context) error {
			_, err := c.sessions.Heartbeat(ctx, connect.NewRequest(&fencelockv1.HeartbeatRequest{SessionId: session}))
			return err
		},
		"close": func(ctx context.Context) error {
			_, err := c.sessions.CloseSession(ctx, connect.NewRequest(&fencelockv1.CloseSessionRequest{SessionId: session}))
			return err
		},
		"acquire": func(ctx context.Context) error {
			_, err := c.locks.Acquire(ctx, connect.NewRequest(opAcquire(0, session, "free", "r1", 0).GetAcquire()))
			return err
		},
		"release": func(ctx context.Context) error {
			_, err := c.locks.Release(ctx, connect.NewRequest(opRelease(0, session, heldKey, token).GetRelease()))
			return err
		},
		"inspect": func(ctx context.Context) error {
			_, err := c.locks.Inspect(ctx, connect.NewRequest(&fencelockv1.InspectRequest{Key: heldKey}))
			return err
		},
		"list": func(ctx context.Context) error {
			_, err := c.locks.ListLocks(ctx, connect.NewRequest(&fencelockv1.ListLocksRequest{}))
			return err
		},
		"revoke": func(ctx context.Context) error {
			_, err := c.admin.Revoke(ctx, connect.NewRequest(&fencelockv1.RevokeRequest{Key: heldKey, Operator: "op", Reason: "worker is stuck"}))
			return err
		},
	}
}

func (f *fixture) wantHealth(t *testing.T, want string) {
	t.Helper()
	for _, name := range []string{"", fencelockv1connect.LockServiceName} {
		if status, body := f.health(t, name); status != http.StatusOK || !contains(body, `"`+want+`"`) {
			t.Errorf("health of %q: %d %s; want %s", name, status, body, want)
		}
	}
}

func (f *fixture) health(t *testing.T, name string) (status int, body string) {
	t.Helper()
	return send(t, httpClient(t, false), f.url(), raw{path: "/grpc.health.v1.Health/Check", body: []byte(`{"service":"` + name + `"}`)})
}

func TestHealth(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.wantHealth(t, "SERVING_STATUS_SERVING")
	if status, body := f.health(t, "fencelock.v1.Unknown"); status != http.StatusNotFound || codeOf(t, body) != "not_found" {
		t.Errorf("health of an unknown service: %d %s, want not_found", status, body)
	}
	f.handler.Drain()
	f.wantHealth(t, "SERVING_STATUS_NOT_SERVING")
}

func TestReflection(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	client := grpcreflect.NewClient(httpClient(t, true), f.url(), connect.WithGRPC())
	stream := client.NewStream(t.Context())
	defer func() { _, _ = stream.Close() }()
	names, err := stream.ListServices()
	if err != nil {
		t.Fatal(err)
	}
	listed := map[protoreflect.FullName]bool{}
	for _, name := range names {
		listed[name] = true
	}
	for _, name := range []protoreflect.FullName{
		fencelockv1connect.SessionServiceName, fencelockv1connect.LockServiceName, fencelockv1connect.AdminServiceName, grpchealth.HealthV1ServiceName,
	} {
		if !listed[name] {
			t.Errorf("%s is not listed: %v", name, names)
		}
		if files, err := stream.FileContainingSymbol(name); err != nil || len(files) == 0 {
			t.Errorf("no file for %s: %v", name, err)
		}
	}
}

func TestServerInfo(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	c := f.plain(t)
	c.acquire(t, c.open(t), "a", "r1")
	info, err := c.admin.GetServerInfo(t.Context(), connect.NewRequest(&fencelockv1.GetServerInfoRequest{}))
	if err != nil {
		t.Fatal(err)
	}
	m := info.Msg
	if !m.GetReady() || m.GetDraining() || m.GetGrants() != 1 || m.GetSessions() != 1 || m.GetVersion() != "test" ||
		m.GetSessionTtl().AsDuration() != 15*time.Second || m.GetSafetyMargin() != 0.3 || m.GetStartedAt() == nil {
		t.Errorf("info %v", m)
	}
}
