package rpc_test

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"testing"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/fencelock/fencelock/adapters/rpc"
	fencelockv1 "github.com/fencelock/fencelock/contracts/api/fencelock/v1"
	"github.com/fencelock/fencelock/contracts/api/fencelock/v1/fencelockv1connect"
	"github.com/fencelock/fencelock/contracts/parity/reference"
	"github.com/fencelock/fencelock/core/clock"
	"github.com/fencelock/fencelock/core/lock"
	"github.com/fencelock/fencelock/core/port"
	"github.com/fencelock/fencelock/core/service"
)

// eventually is the generous limit of everything that must happen some time.
const eventually = 30 * time.Second

// fixture is a real handler over the real service over the reference store, behind a real server.
type fixture struct {
	world   *reference.World
	link    *reference.Client // what the server asks
	aside   *reference.Client // what the test asks
	handler *rpc.Handler
	service *service.Service
	addr    string
}

type silent struct{}

func (silent) Observe(context.Context, port.Event) {}

func newFixture(t *testing.T, adjust ...func(*rpc.Config)) *fixture {
	t.Helper()
	world := reference.New()
	t.Cleanup(world.Close)
	f := &fixture{world: world, link: world.Client(), aside: world.Client()}
	f.service = service.New(f.link.Backend(), service.Config{}, clock.Boot{}, silent{})
	f.service.Start()
	t.Cleanup(f.service.Close)
	cfg := rpc.Config{
		Service: f.service,
		Clock:   clock.Boot{},
		Ready:   f.service.Ping,
		Info:    rpc.Info{Version: "test", SessionTTL: 15 * time.Second, SafetyMargin: 0.3, StartedAt: time.Now()},
	}
	for _, a := range adjust {
		a(&cfg)
	}
	f.handler = rpc.New(cfg)
	f.serve(t)
	return f
}

func (f *fixture) serve(t *testing.T) {
	t.Helper()
	listener, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := rpc.NewServer(f.handler, slog.New(slog.DiscardHandler))
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	t.Cleanup(func() {
		_ = server.Close()
		if err := <-served; !errors.Is(err, http.ErrServerClosed) {
			t.Errorf("the server ended with %v", err)
		}
	})
	f.addr = listener.Addr().String()
}

func (f *fixture) url() string { return "http://" + f.addr }

// protocol is one way to talk to the server.
type protocol struct {
	name    string
	http2   bool
	options []connect.ClientOption
}

func protocols() []protocol {
	return []protocol{
		{name: "connect"},
		{name: "connect over h2", http2: true},
		{name: "json", options: []connect.ClientOption{connect.WithProtoJSON()}},
		{name: "grpc", http2: true, options: []connect.ClientOption{connect.WithGRPC()}},
		{name: "grpc-web", options: []connect.ClientOption{connect.WithGRPCWeb()}},
	}
}

// api is a client of all services.
type api struct {
	sessions fencelockv1connect.SessionServiceClient
	locks    fencelockv1connect.LockServiceClient
	admin    fencelockv1connect.AdminServiceClient
}

func (f *fixture) client(t *testing.T, p protocol) api {
	t.Helper()
	hc := httpClient(t, p.http2)
	return api{
		sessions: fencelockv1connect.NewSessionServiceClient(hc, f.url(), p.options...),
		locks:    fencelockv1connect.NewLockServiceClient(hc, f.url(), p.options...),
		admin:    fencelockv1connect.NewAdminServiceClient(hc, f.url(), p.options...),
	}
}

func httpClient(t *testing.T, http2 bool) *http.Client {
	t.Helper()
	var protocols http.Protocols
	protocols.SetHTTP1(!http2)
	protocols.SetUnencryptedHTTP2(http2)
	transport := &http.Transport{Protocols: &protocols}
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport}
}

// plain is the simplest client for tests that are not about the protocol.
func (f *fixture) plain(t *testing.T) api {
	t.Helper()
	return f.client(t, protocol{http2: true})
}

func (a api) open(t *testing.T) string {
	t.Helper()
	answer, err := a.sessions.OpenSession(t.Context(), connect.NewRequest(&fencelockv1.OpenSessionRequest{
		Owner: "tester", Ttl: durationpb.New(time.Minute),
	}))
	if err != nil {
		t.Fatal(err)
	}
	return answer.Msg.GetSession().GetId()
}

func (a api) acquire(t *testing.T, session, key, request string) *fencelockv1.Grant {
	t.Helper()
	answer, err := a.locks.Acquire(t.Context(), connect.NewRequest(&fencelockv1.AcquireRequest{
		Key: key, SessionId: session, RequestId: request,
	}))
	if err != nil {
		t.Fatal(err)
	}
	if answer.Msg.GetGrant() == nil {
		t.Fatalf("acquire %s: held by %v", key, answer.Msg.GetHeld())
	}
	return answer.Msg.GetGrant()
}

func (a api) release(t *testing.T, session, key string, token int64) {
	t.Helper()
	answer, err := a.locks.Release(t.Context(), connect.NewRequest(&fencelockv1.ReleaseRequest{
		Key: key, SessionId: session, Token: token,
	}))
	if err != nil || !answer.Msg.GetReleased() {
		t.Fatalf("release %s: %v, %v", key, answer, err)
	}
}

// snapshot is all that the store holds, without what time alone changes.
func (f *fixture) snapshot(t *testing.T) string {
	t.Helper()
	page := port.Page{Size: port.MaxPageSize}
	grants, _, err := f.aside.Grants(t.Context(), lock.DefaultNamespace, "", page)
	if err != nil {
		t.Fatal(err)
	}
	for i := range grants {
		grants[i].LeaseRemaining = 0
	}
	sessions, _, err := f.aside.Sessions(t.Context(), page)
	if err != nil {
		t.Fatal(err)
	}
	revocations, _, err := f.aside.Revocations(t.Context(), lock.DefaultNamespace, page)
	if err != nil {
		t.Fatal(err)
	}
	counts, err := f.aside.Counts(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var sessionIDs []string
	for _, s := range sessions {
		sessionIDs = append(sessionIDs, s.ID.Reveal())
	}
	text, err := json.Marshal([]any{grants, sessionIDs, revocations, counts, f.world.Registrations(), f.service.Status()})
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// waitFor asks until the condition holds.
func waitFor(t *testing.T, what string, condition func() bool) {
	t.Helper()
	deadline := time.NewTimer(eventually)
	defer deadline.Stop()
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for !condition() {
		select {
		case <-tick.C:
		case <-deadline.C:
			t.Fatalf("never happened: %s", what)
		}
	}
}

// wantError checks a coded error: the status, and the detail unless none is wanted.
func wantError(t *testing.T, err error, status connect.Code, code fencelockv1.ErrorCode) *fencelockv1.ErrorDetail {
	t.Helper()
	if got := connect.CodeOf(err); err == nil || got != status {
		t.Fatalf("error %v, want code %v", err, status)
	}
	detail := detailIn(err)
	if detail.GetCode() != code {
		t.Fatalf("detail %v, want %v", detail, code)
	}
	return detail
}

func detailIn(err error) *fencelockv1.ErrorDetail {
	var wire *connect.Error
	if !errors.As(err, &wire) {
		return nil
	}
	for _, d := range wire.Details() {
		if value, err := d.Value(); err == nil {
			if detail, ok := value.(*fencelockv1.ErrorDetail); ok {
				return detail
			}
		}
	}
	return nil
}
