package command_test

import (
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	v1 "github.com/fencelock/fencelock/contracts/api/fencelock/v1"
)

func TestRequests(t *testing.T) {
	t.Parallel()
	env := environ("USER", "olga", "FENCELOCK_NAMESPACE", "team", "FENCELOCK_SESSION", testSession)
	for _, c := range []struct {
		line string
		want proto.Message
	}{
		{
			"acquire --key k --request-id r1",
			&v1.AcquireRequest{Namespace: "team", Key: "k", SessionId: testSession, RequestId: "r1"},
		},
		{
			"acquire --key k --request-id r1 --namespace other --wait 3s --lease 4s --metadata a=b,c=d",
			&v1.AcquireRequest{
				Namespace: "other", Key: "k", SessionId: testSession, RequestId: "r1", Metadata: map[string]string{"a": "b", "c": "d"},
				Wait: durationpb.New(3 * time.Second), Lease: durationpb.New(4 * time.Second),
			},
		},
		{ // zero is sent, not left out: the server refuses it
			"acquire --key k --request-id r1 --lease 0",
			&v1.AcquireRequest{Namespace: "team", Key: "k", SessionId: testSession, RequestId: "r1", Lease: durationpb.New(0)},
		},
		{
			"release --key k --token 9007199254740993 --session ffffffffffffffffffffffffffffffff",
			&v1.ReleaseRequest{Namespace: "team", Key: "k", SessionId: strings.Repeat("f", 32), Token: big},
		},
		{"extend --key k --token 7", &v1.ExtendRequest{Namespace: "team", Key: "k", SessionId: testSession, Token: 7}},
		{"inspect --key k", &v1.InspectRequest{Namespace: "team", Key: "k"}},
		{"session heartbeat", &v1.HeartbeatRequest{SessionId: testSession}},
		{"session close", &v1.CloseSessionRequest{SessionId: testSession}},
		{"session open --owner me", &v1.OpenSessionRequest{Owner: "me"}},
		{"session open --owner me --ttl 0s", &v1.OpenSessionRequest{Owner: "me", Ttl: durationpb.New(0)}},
		{
			"revoke --key k --reason stuck-since-noon --expected-token 5",
			&v1.RevokeRequest{Namespace: "team", Key: "k", Operator: "olga", Reason: "stuck-since-noon", ExpectedToken: 5},
		},
		{
			"floor raise --above 99 --operator otto --reason restored-a-copy",
			&v1.RaiseTokenFloorRequest{Above: 99, Operator: "otto", Reason: "restored-a-copy"},
		},
		{"list --prefix job/ --limit 1", &v1.ListLocksRequest{Namespace: "team", Prefix: "job/", PageSize: 1}},
		{"revocations", &v1.ListRevocationsRequest{Namespace: "team", PageSize: 500}},
	} {
		t.Run(c.line, func(t *testing.T) {
			t.Parallel()
			f := newFake()
			o := call(t, env, strings.Fields(c.line+" --server "+f.serve(t))...)
			asked := f.requests()
			if o.code != 0 || len(asked) != 1 || !proto.Equal(asked[0], c.want) {
				t.Errorf("code %d, asked %v, want %v; %s", o.code, asked, c.want, o.errors)
			}
		})
	}
}

func TestSeveralServersAreTriedInTurn(t *testing.T) {
	t.Parallel()
	// Nothing listens on port 1.
	list := "http://127.0.0.1:1," + newFake().serve(t)
	for name, o := range map[string]outcome{
		"flag":        call(t, environ(), "inspect", "--key", "k", "--server", list),
		"environment": call(t, environ("FENCELOCK_SERVER", list), "inspect", "--key", "k"),
	} {
		if o.code != 0 {
			t.Errorf("%s: %+v", name, o)
		}
	}
}

func TestAnAcquireWithAnIDOfItsOwnIsWithdrawnWhenItsOutcomeIsUnknown(t *testing.T) {
	t.Parallel()
	unknown := failure(connect.CodeUnavailable, &v1.ErrorDetail{
		Code: v1.ErrorCode_ERROR_CODE_CONTENTION, SafeToRetry: true, Ambiguous: true, Message: "no answer",
	})
	for _, c := range []struct {
		name, more string
		withdrawn  bool
	}{
		{"drawn by lockctl", "", true},
		{"given by the caller, who may repeat it", " --request-id mine", false},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			f := newFake()
			f.fail = unknown
			o := call(t, environ("FENCELOCK_SESSION", testSession), strings.Fields("acquire --key k"+c.more+" --server "+f.serve(t))...)
			asked := f.requests()
			var abandoned *v1.AbandonRequest
			for _, m := range asked {
				if a, ok := m.(*v1.AbandonRequest); ok {
					abandoned = a
				}
			}
			if o.code != 202 || (abandoned != nil) != c.withdrawn {
				t.Fatalf("code %d, asked %v", o.code, asked)
			}
			if id := asked[0].(*v1.AcquireRequest).GetRequestId(); abandoned != nil && abandoned.GetRequestId() != id {
				t.Errorf("abandoned %q, asked with %q", abandoned.GetRequestId(), id)
			}
		})
	}
}
