package command_test

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	v1 "github.com/fencelock/fencelock/contracts/api/fencelock/v1"
	"github.com/fencelock/fencelock/contracts/api/fencelock/v1/fencelockv1connect"
)

// moment is when everything in these tests happens.
var moment = timestamppb.New(time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC))

const (
	testSession = "0123456789abcdef0123456789abcdef"
	// big does not fit a float64: a JSON number would spoil it.
	big = int64(9007199254740993)
)

// fake is a server that answers what it is told and records what it was asked.
type fake struct {
	fencelockv1connect.UnimplementedSessionServiceHandler
	fencelockv1connect.UnimplementedLockServiceHandler
	fencelockv1connect.UnimplementedAdminServiceHandler

	mu    sync.Mutex
	asked []proto.Message
	// fail is the answer to everything, if set.
	fail error
	// refuseSessions is the answer to OpenSession, if set.
	refuseSessions error
	// watched is what a watch shows, if not the usual two pictures; endWatch is how it then ends.
	watched  []*v1.InspectResponse
	endWatch error
	held     bool
	// info is the answer to GetServerInfo.
	info *v1.GetServerInfoResponse
	// heartbeat runs before a heartbeat is answered, release before a release.
	heartbeat, release func(ctx context.Context)
	releasedBefore     bool
}

func newFake() *fake {
	return &fake{info: &v1.GetServerInfoResponse{
		Version: "v1.2.3", Backend: "memory", Ready: true, SessionTtl: durationpb.New(15 * time.Second),
		SafetyMargin: 0.3, StartedAt: moment, Grants: 3, Sessions: 2, Waiters: 1,
	}, endWatch: failure(connect.CodePermissionDenied, &v1.ErrorDetail{Code: v1.ErrorCode_ERROR_CODE_DENIED, Message: "no more"})}
}

// serve starts the fake and returns its address.
func (f *fake) serve(t *testing.T) string {
	t.Helper()
	mux := http.NewServeMux()
	mux.Handle(fencelockv1connect.NewSessionServiceHandler(f))
	mux.Handle(fencelockv1connect.NewLockServiceHandler(f))
	mux.Handle(fencelockv1connect.NewAdminServiceHandler(f))
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)
	return server.URL
}

// record notes a request and returns the failure to answer with, if any.
func (f *fake) record(m proto.Message) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.asked = append(f.asked, m)
	return f.fail
}

// requests returns what was asked.
func (f *fake) requests() []proto.Message {
	f.mu.Lock()
	defer f.mu.Unlock()
	return append([]proto.Message{}, f.asked...)
}

// answer records the request and gives the answer, or the failure.
func answer[Req, Res any, M interface {
	*Req
	proto.Message
}](f *fake, req *connect.Request[Req], res *Res) (*connect.Response[Res], error) {
	if err := f.record(M(req.Msg)); err != nil {
		return nil, err
	}
	return connect.NewResponse(res), nil
}

// failure is an error of the service as it crosses the wire.
func failure(code connect.Code, detail *v1.ErrorDetail) error {
	err := connect.NewError(code, errors.New(detail.GetMessage()))
	if d, e := connect.NewErrorDetail(detail); e == nil {
		err.AddDetail(d)
	}
	return err
}

func grant(key string, token int64) *v1.Grant {
	return &v1.Grant{
		Namespace: "default", Key: key, Token: token, Owner: "ann@build", AcquiredAt: moment,
		SessionHash: "5f3a9c01", Metadata: map[string]string{"job": "7", "a": "b"},
	}
}

func (f *fake) OpenSession(_ context.Context, req *connect.Request[v1.OpenSessionRequest]) (*connect.Response[v1.OpenSessionResponse], error) {
	if f.refuseSessions != nil {
		return nil, f.refuseSessions
	}
	return answer(f, req, &v1.OpenSessionResponse{Session: &v1.Session{
		Id: testSession, Owner: req.Msg.GetOwner(), Ttl: durationpb.New(15 * time.Second), CreatedAt: moment,
	}})
}

func (f *fake) Heartbeat(ctx context.Context, req *connect.Request[v1.HeartbeatRequest]) (*connect.Response[v1.HeartbeatResponse], error) {
	if f.heartbeat != nil {
		f.heartbeat(ctx)
	}
	return answer(f, req, &v1.HeartbeatResponse{Remaining: durationpb.New(14987654 * time.Microsecond)})
}

func (f *fake) CloseSession(_ context.Context, req *connect.Request[v1.CloseSessionRequest]) (*connect.Response[v1.CloseSessionResponse], error) {
	return answer(f, req, &v1.CloseSessionResponse{Released: 2})
}

func (f *fake) Acquire(_ context.Context, req *connect.Request[v1.AcquireRequest]) (*connect.Response[v1.AcquireResponse], error) {
	if f.held {
		return answer(f, req, &v1.AcquireResponse{Outcome: &v1.AcquireResponse_Held{Held: &v1.Held{
			Owner: "bob@site", Token: big, AcquiredAt: moment, Waiters: 4, SessionHash: "00c0ffee",
		}}})
	}
	g := grant(req.Msg.GetKey(), big)
	g.RequestId, g.SignedToken = req.Msg.GetRequestId(), "9007199254740993.00112233aabbccdd.5f3a9c01.c2lnbmVk"
	return answer(f, req, &v1.AcquireResponse{Outcome: &v1.AcquireResponse_Grant{Grant: g}})
}

func (f *fake) Abandon(_ context.Context, req *connect.Request[v1.AbandonRequest]) (*connect.Response[v1.AbandonResponse], error) {
	f.mu.Lock()
	f.asked = append(f.asked, req.Msg)
	f.mu.Unlock()
	return connect.NewResponse(&v1.AbandonResponse{}), nil
}

func (f *fake) Extend(_ context.Context, req *connect.Request[v1.ExtendRequest]) (*connect.Response[v1.ExtendResponse], error) {
	g := grant(req.Msg.GetKey(), req.Msg.GetToken())
	g.LeaseRemaining = durationpb.New(30 * time.Second)
	return answer(f, req, &v1.ExtendResponse{Grant: g})
}

func (f *fake) Release(ctx context.Context, req *connect.Request[v1.ReleaseRequest]) (*connect.Response[v1.ReleaseResponse], error) {
	if f.release != nil {
		f.release(ctx)
	}
	return answer(f, req, &v1.ReleaseResponse{Released: !f.releasedBefore})
}

func (f *fake) Inspect(_ context.Context, req *connect.Request[v1.InspectRequest]) (*connect.Response[v1.InspectResponse], error) {
	if req.Msg.GetKey() == "free" {
		return answer(f, req, &v1.InspectResponse{Floor: 17})
	}
	return answer(f, req, &v1.InspectResponse{Held: true, Grant: grant(req.Msg.GetKey(), big), Waiters: 2})
}

// ListLocks has five grants, and gives two on a page at most.
func (f *fake) ListLocks(_ context.Context, req *connect.Request[v1.ListLocksRequest]) (*connect.Response[v1.ListLocksResponse], error) {
	const total, perPage = 5, 2
	start := len(req.Msg.GetPageToken())
	end := min(start+min(perPage, int(req.Msg.GetPageSize())), total)
	resp := &v1.ListLocksResponse{}
	for i := start; i < end; i++ {
		resp.Grants = append(resp.Grants, grant("job/"+string(rune('a'+i)), int64(i+1)))
	}
	if end < total {
		resp.NextPageToken = "....."[:end]
	}
	return answer(f, req, resp)
}

func (f *fake) WatchLock(_ context.Context, req *connect.Request[v1.WatchLockRequest], stream *connect.ServerStream[v1.WatchLockResponse]) error {
	if err := f.record(req.Msg); err != nil {
		return err
	}
	states := f.watched
	if states == nil {
		states = []*v1.InspectResponse{{Held: true, Grant: grant(req.Msg.GetKey(), 41), Waiters: 1}, {Floor: 41}}
	}
	for _, state := range states {
		if err := stream.Send(&v1.WatchLockResponse{State: state}); err != nil {
			return err
		}
	}
	return f.endWatch
}

func (f *fake) Revoke(_ context.Context, req *connect.Request[v1.RevokeRequest]) (*connect.Response[v1.RevokeResponse], error) {
	return answer(f, req, &v1.RevokeResponse{Revocation: revocation(req.Msg.GetKey(), 41)})
}

func revocation(key string, token int64) *v1.Revocation {
	return &v1.Revocation{
		Id: "r-1", Namespace: "default", Key: key, Operator: "olga", Reason: "stuck since noon", At: moment,
		PreviousOwner: "ann@build", PreviousSessionHash: "5f3a9c01", PreviousToken: token, Floor: token + 1,
	}
}

func (f *fake) ListRevocations(_ context.Context, req *connect.Request[v1.ListRevocationsRequest]) (*connect.Response[v1.ListRevocationsResponse], error) {
	return answer(f, req, &v1.ListRevocationsResponse{Revocations: []*v1.Revocation{revocation("b", 50), revocation("a", 41)}})
}

func (f *fake) ListSessions(_ context.Context, req *connect.Request[v1.ListSessionsRequest]) (*connect.Response[v1.ListSessionsResponse], error) {
	return answer(f, req, &v1.ListSessionsResponse{Sessions: []*v1.SessionSummary{
		{Hash: "5f3a9c01", Owner: "ann@build", Ttl: durationpb.New(15 * time.Second), CreatedAt: moment},
	}})
}

func (f *fake) GetServerInfo(_ context.Context, req *connect.Request[v1.GetServerInfoRequest]) (*connect.Response[v1.GetServerInfoResponse], error) {
	return answer(f, req, f.info)
}

func (f *fake) RaiseTokenFloor(_ context.Context, req *connect.Request[v1.RaiseTokenFloorRequest]) (*connect.Response[v1.RaiseTokenFloorResponse], error) {
	return answer(f, req, &v1.RaiseTokenFloorResponse{EndedGrants: 3, Floor: req.Msg.GetAbove() + 1, At: moment})
}
