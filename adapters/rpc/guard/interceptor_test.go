package guard_test

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"

	"github.com/fencelock/fencelock/adapters/rpc/guard"
	paymentsv1 "github.com/fencelock/fencelock/contracts/api/fencelock/payments/v1"
	"github.com/fencelock/fencelock/contracts/api/fencelock/payments/v1/paymentsv1connect"
	v1 "github.com/fencelock/fencelock/contracts/api/fencelock/v1"
	"github.com/fencelock/fencelock/contracts/api/fencelock/v1/fencelockv1connect"
	"github.com/fencelock/fencelock/core/fence"
	"github.com/fencelock/fencelock/core/lock"
)

// payments is a service of which two procedures are written: one that writes, one that reads.
type payments struct {
	paymentsv1connect.UnimplementedPaymentServiceHandler

	// claims answers a Claim by the token it was given.
	claims func(ctx context.Context, token lock.Token) error
}

func (p payments) Claim(
	ctx context.Context, req *connect.Request[paymentsv1.ClaimRequest],
) (*connect.Response[paymentsv1.ClaimResponse], error) {
	token, ok := guard.Token(ctx)
	if !ok {
		return nil, errors.New("no token")
	}
	if err := p.claims(ctx, token); err != nil {
		return nil, err
	}
	return connect.NewResponse(&paymentsv1.ClaimResponse{
		Account: &paymentsv1.Account{Id: req.Msg.GetAccount(), Fence: int64(token)},
	}), nil
}

func (payments) GetPayout(
	ctx context.Context, _ *connect.Request[paymentsv1.GetPayoutRequest],
) (*connect.Response[paymentsv1.GetPayoutResponse], error) {
	if token, ok := guard.Token(ctx); ok {
		return nil, errors.New("a token: " + string(rune(token)))
	}
	return connect.NewResponse(&paymentsv1.GetPayoutResponse{}), nil
}

func accountOf(req connect.AnyRequest) (lock.Key, error) {
	claim, ok := req.Any().(*paymentsv1.ClaimRequest)
	if !ok {
		return lock.Key{}, errors.New("password of the database")
	}
	return lock.NewKey("", "payout:"+claim.GetAccount())
}

// dial serves the payments behind an interceptor and returns a client.
func dial(t *testing.T, p payments, interceptor connect.Interceptor, opts ...connect.ClientOption) paymentsv1connect.PaymentServiceClient {
	t.Helper()
	mux := http.NewServeMux()
	mux.Handle(paymentsv1connect.NewPaymentServiceHandler(p, connect.WithInterceptors(interceptor)))
	return paymentsv1connect.NewPaymentServiceClient(start(t, mux), "http://server", opts...)
}

// start serves over HTTP/2 without TLS in memory of the machine, for all three protocols.
func start(t *testing.T, h http.Handler) *http.Client {
	t.Helper()
	server := httptest.NewUnstartedServer(h)
	server.Config.Protocols = new(http.Protocols)
	server.Config.Protocols.SetUnencryptedHTTP2(true)
	server.Start()
	t.Cleanup(server.Close)
	transport := &http.Transport{Protocols: server.Config.Protocols}
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: redirect{transport, server.Listener.Addr().String()}}
}

// redirect sends all requests to one address.
type redirect struct {
	http.RoundTripper

	address string
}

func (d redirect) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.URL.Host = d.address
	return d.RoundTripper.RoundTrip(r)
}

func claim(ctx context.Context, c paymentsv1connect.PaymentServiceClient, account string, tokens ...string) (int64, error) {
	req := connect.NewRequest(&paymentsv1.ClaimRequest{Id: "p", Account: account})
	for _, token := range tokens {
		req.Header().Add(guard.Header, token)
	}
	answer, err := c.Claim(ctx, req)
	if err != nil {
		return 0, err
	}
	return answer.Msg.GetAccount().GetFence(), nil
}

// refusedBy expects a Connect code and the detail of the lock service.
func refusedBy(t *testing.T, what string, err error, status connect.Code, code v1.ErrorCode) *v1.ErrorDetail {
	t.Helper()
	wire, ok := errors.AsType[*connect.Error](err)
	if !ok || wire.Code() != status {
		t.Errorf("%s: got %v, want %s", what, err, status)
		return nil
	}
	if strings.Contains(err.Error(), "password") {
		t.Errorf("%s: the answer tells too much: %v", what, err)
	}
	for _, d := range wire.Details() {
		if value, err := d.Value(); err == nil {
			if detail, ok := value.(*v1.ErrorDetail); ok && detail.GetCode() == code {
				return detail
			}
		}
	}
	t.Errorf("%s: %v has no detail %s", what, err, code)
	return nil
}

func nothing(context.Context, lock.Token) error { return nil }

func TestInterceptorInAllProtocols(t *testing.T) {
	t.Parallel()
	for name, opts := range map[string][]connect.ClientOption{
		"connect": nil, "gRPC": {connect.WithGRPC()}, "gRPC-Web": {connect.WithGRPCWeb()}, "JSON": {connect.WithProtoJSON()},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			signer, verifier := signing(t)
			session := lock.NewSessionID().Hash()
			c := dial(t, payments{claims: nothing}, guard.NewInterceptor(verifier, accountOf,
				guard.WithUnguarded(paymentsv1connect.PaymentServiceGetPayoutProcedure),
				guard.WithMarks(guard.NewGate(newMemory()), fence.Above)), opts...)
			sign := func(account string, token lock.Token) string {
				return signer.Sign(newKey(t, "payout:"+account), token, session)
			}

			if token, err := claim(t.Context(), c, "1", sign("1", 33)); err != nil || token != 33 {
				t.Errorf("a signed token: %d, %v", token, err)
			}
			_, err := claim(t.Context(), c, "1", sign("1", 32))
			detail := refusedBy(t, "an older one", err, connect.CodeFailedPrecondition, v1.ErrorCode_ERROR_CODE_FENCED_OUT)
			if d := detail.GetDetails(); d["presented"] != "32" || d["highest"] != "33" || detail.GetSafeToRetry() {
				t.Errorf("the detail is %v", detail)
			}
			_, err = claim(t.Context(), c, "1")
			refusedBy(t, "no token", err, connect.CodeInvalidArgument, v1.ErrorCode_ERROR_CODE_INVALID)
			_, err = claim(t.Context(), c, "1", sign("1", 34), sign("1", 34))
			refusedBy(t, "two headers", err, connect.CodeInvalidArgument, v1.ErrorCode_ERROR_CODE_INVALID)
			_, err = claim(t.Context(), c, "1", "33,34")
			refusedBy(t, "a list", err, connect.CodeInvalidArgument, v1.ErrorCode_ERROR_CODE_INVALID)
			_, err = claim(t.Context(), c, "2", sign("1", 34))
			refusedBy(t, "another key's", err, connect.CodePermissionDenied, v1.ErrorCode_ERROR_CODE_DENIED)
			_, err = claim(t.Context(), c, "1", "9223372036854775807")
			refusedBy(t, "unsigned", err, connect.CodePermissionDenied, v1.ErrorCode_ERROR_CODE_DENIED)
			_, err = claim(t.Context(), c, "a b", sign("1", 34))
			refusedBy(t, "a key that cannot be", err, connect.CodeInvalidArgument, v1.ErrorCode_ERROR_CODE_INVALID)
			if _, err := c.GetPayout(t.Context(), connect.NewRequest(&paymentsv1.GetPayoutRequest{})); err != nil {
				t.Errorf("an unguarded procedure: %v", err)
			}
			// What nobody has named is guarded.
			_, err = c.GetLedger(t.Context(), connect.NewRequest(&paymentsv1.GetLedgerRequest{}))
			if connect.CodeOf(err) == connect.CodeUnimplemented || err == nil {
				t.Errorf("a procedure that nobody named: %v", err)
			}
		})
	}
}

func TestErrorsOfTheHandlerThatAreOfTheSetAreTranslated(t *testing.T) {
	t.Parallel()
	answers := make(chan error, 1)
	c := dial(t, payments{claims: func(context.Context, lock.Token) error { return <-answers }},
		guard.NewInterceptor(fence.Unsigned{}, accountOf))
	answers <- &fence.FencedOutError{Resource: "account:1", Rule: fence.Equal, Presented: 33, Highest: 34}
	_, err := claim(t.Context(), c, "1", "33")
	detail := refusedBy(t, "fenced out inside", err, connect.CodeFailedPrecondition, v1.ErrorCode_ERROR_CODE_FENCED_OUT)
	if d := detail.GetDetails(); d["presented"] != "33" || d["highest"] != "34" {
		t.Errorf("the detail is %v", detail)
	}
	answers <- lock.Contention("another transaction has changed the mark", false, errors.New("password"))
	_, err = claim(t.Context(), c, "1", "33")
	refusedBy(t, "contention inside", err, connect.CodeUnavailable, v1.ErrorCode_ERROR_CODE_CONTENTION)
	answers <- connect.NewError(connect.CodeNotFound, lock.ErrLost)
	if _, err = claim(t.Context(), c, "1", "33"); connect.CodeOf(err) != connect.CodeNotFound {
		t.Errorf("the service's own word: %v", err)
	}
	answers <- errors.New("its own trouble")
	if _, err = claim(t.Context(), c, "1", "33"); connect.CodeOf(err) != connect.CodeUnknown || !strings.Contains(err.Error(), "its own trouble") {
		t.Errorf("another error: %v", err)
	}
}

func TestMarksThatCannotBeAskedAreUnavailable(t *testing.T) {
	t.Parallel()
	marks := newMemory()
	marks.fails = lock.Contention("the marks did not answer", true, errors.New("password"))
	c := dial(t, payments{claims: nothing}, guard.NewInterceptor(fence.Unsigned{}, accountOf, guard.WithMarks(guard.NewGate(marks), fence.Above)))
	_, err := claim(t.Context(), c, "1", "33")
	if detail := refusedBy(t, "contention", err, connect.CodeUnavailable, v1.ErrorCode_ERROR_CODE_CONTENTION); !detail.GetAmbiguous() {
		t.Errorf("the detail is %v", detail)
	}
}

// TestACallersDeadlineEndsItsWait: the turn is taken for as long as the test lasts.
func TestACallersDeadlineEndsItsWait(t *testing.T) {
	t.Parallel()
	gate := guard.NewGate(newMemory())
	c := dial(t, payments{claims: nothing}, guard.NewInterceptor(fence.Unsigned{}, accountOf, guard.WithMarks(gate, fence.Above)))
	leave, err := gate.Enter(t.Context(), fence.Above, "default/payout:1", 1)
	if err != nil {
		t.Fatal(err)
	}
	defer leave()
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	if _, err := claim(ctx, c, "1", "33"); connect.CodeOf(err) != connect.CodeDeadlineExceeded {
		t.Errorf("got %v", err)
	}
	eventually(t, "it has left", func() bool { people, _ := gate.At("default/payout:1"); return people == 1 })
	if _, err := claim(t.Context(), c, "2", "33"); err != nil {
		t.Errorf("another resource waits too: %v", err)
	}
}

func TestStreamsAreRefusedUnlessNamed(t *testing.T) {
	t.Parallel()
	open := func(opts ...guard.Option) error {
		mux := http.NewServeMux()
		interceptor := guard.NewInterceptor(fence.Unsigned{}, accountOf, opts...)
		mux.Handle(fencelockv1connect.NewSessionServiceHandler(fencelockv1connect.UnimplementedSessionServiceHandler{},
			connect.WithInterceptors(interceptor)))
		// The same interceptor round a client does nothing.
		c := fencelockv1connect.NewSessionServiceClient(start(t, mux), "http://server", connect.WithInterceptors(interceptor))
		stream, err := c.WatchSession(t.Context(), connect.NewRequest(&v1.WatchSessionRequest{}))
		if err != nil {
			return err
		}
		defer stream.Close()
		for stream.Receive() {
			t.Error("something was sent")
		}
		return stream.Err()
	}
	const ours = "cannot be guarded"
	if err := open(); connect.CodeOf(err) != connect.CodeUnimplemented || !strings.Contains(err.Error(), ours) {
		t.Errorf("got %v", err)
	}
	if err := open(guard.WithUnguarded(fencelockv1connect.SessionServiceWatchSessionProcedure)); err == nil || strings.Contains(err.Error(), ours) {
		t.Errorf("a stream that is named: %v", err)
	}
}

func TestAClientIsNotGuarded(t *testing.T) {
	t.Parallel()
	nobody := func(connect.AnyRequest) (lock.Key, error) { return lock.Key{}, lock.ErrInvalid }
	c := dial(t, payments{claims: nothing}, guard.NewInterceptor(fence.Unsigned{}, accountOf),
		connect.WithInterceptors(guard.NewInterceptor(fence.Unsigned{}, nobody)))
	if _, err := claim(t.Context(), c, "1", "33"); err != nil {
		t.Errorf("got %v", err)
	}
}

func TestAHandlerHasTheTurnWhileItRuns(t *testing.T) {
	t.Parallel()
	gate := guard.NewGate(newMemory())
	people := 0
	c := dial(t, payments{claims: func(context.Context, lock.Token) error {
		people, _ = gate.At("default/payout:1")
		return errors.New("whatever comes of it")
	}}, guard.NewInterceptor(fence.Unsigned{}, accountOf, guard.WithMarks(gate, fence.Above)))
	_, _ = claim(t.Context(), c, "1", "33")
	if _, left := gate.At(""); people != 1 || left != 0 {
		t.Errorf("%d had the turn, %d resources are left behind", people, left)
	}
}
