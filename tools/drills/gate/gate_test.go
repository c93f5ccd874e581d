package gate_test

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"connectrpc.com/connect"
	"go.uber.org/goleak"
	"google.golang.org/protobuf/proto"

	v1 "github.com/fencelock/fencelock/contracts/api/fencelock/payments/v1"
	"github.com/fencelock/fencelock/contracts/api/fencelock/payments/v1/paymentsv1connect"
	fencelockv1 "github.com/fencelock/fencelock/contracts/api/fencelock/v1"
	"github.com/fencelock/fencelock/tools/drills/gate"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// patience is how long a test waits for what must happen at all.
const patience = time.Minute

// service notes what reaches it.
type service struct {
	paymentsv1connect.UnimplementedRailServiceHandler
	paymentsv1connect.UnimplementedPaymentServiceHandler

	submits  chan string
	refusals map[string]proto.Message
}

// Submit implements paymentsv1connect.RailServiceHandler.
func (s *service) Submit(ctx context.Context, req *connect.Request[v1.SubmitRequest]) (*connect.Response[v1.SubmitResponse], error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if detail := s.refusals[req.Msg.GetPayout()]; detail != nil {
		refusal := connect.NewError(connect.CodeFailedPrecondition, errors.New("no"))
		if d, err := connect.NewErrorDetail(detail); err == nil {
			refusal.AddDetail(d)
		}
		return nil, refusal
	}
	s.submits <- req.Msg.GetPayout()
	return connect.NewResponse(&v1.SubmitResponse{Submission: &v1.Submission{Payout: req.Msg.GetPayout()}}), nil
}

// stage is a service behind a gate.
type stage struct {
	*testing.T
	*gate.Gate

	service *service
	rail    paymentsv1connect.RailServiceClient
	payment paymentsv1connect.PaymentServiceClient
}

func open(t *testing.T, options ...connect.ClientOption) *stage {
	t.Helper()
	s := &stage{T: t, service: &service{submits: make(chan string, 10)}}
	mux := http.NewServeMux()
	mux.Handle(paymentsv1connect.NewRailServiceHandler(s.service))
	mux.Handle(paymentsv1connect.NewPaymentServiceHandler(s.service))
	behind := httptest.NewServer(mux)
	t.Cleanup(behind.Close)
	var err error
	if s.Gate, err = gate.Open(behind.URL); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	client := &http.Client{Transport: new(http.Transport)}
	t.Cleanup(client.CloseIdleConnections)
	s.rail = paymentsv1connect.NewRailServiceClient(client, s.URL(), options...)
	s.payment = paymentsv1connect.NewPaymentServiceClient(client, s.URL(), options...)
	return s
}

// submit calls Submit and hands its error on.
func (s *stage) submit(ctx context.Context, payout string) <-chan error {
	failed := make(chan error, 1)
	go func() {
		req := connect.NewRequest(&v1.SubmitRequest{Payout: payout})
		req.Header().Set("Fencelock-Token", "33")
		_, err := s.rail.Submit(ctx, req)
		failed <- err
	}()
	return failed
}

func within[V any](t *testing.T, what string, c <-chan V) V {
	t.Helper()
	select {
	case v := <-c:
		return v
	case <-time.After(patience):
		t.Fatalf("still not after %v: %s", patience, what)
		panic("unreachable")
	}
}

// nothing reports that a channel has nothing yet. It cannot prove that nothing comes, but a gate that does not hold is seen.
func nothing[V any](t *testing.T, what string, c <-chan V) {
	t.Helper()
	select {
	case v := <-c:
		t.Fatalf("%s: %v", what, v)
	case <-time.After(50 * time.Millisecond):
	}
}

func of(payout string) func(gate.Call) bool {
	return func(c gate.Call) bool { return c.Method == "Submit" && c.Payout == payout }
}

func TestCallsPassAndAreRead(t *testing.T) {
	t.Parallel()
	for name, options := range map[string][]connect.ClientOption{"binary": nil, "JSON": {connect.WithProtoJSON()}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := open(t, options...)
			ctx := t.Context()
			if err := <-s.submit(ctx, "p1"); err != nil {
				t.Fatalf("submit: %v", err)
			}
			_, _ = s.rail.Lookup(ctx, connect.NewRequest(&v1.LookupRequest{Payout: "p2"}))
			_, _ = s.payment.Claim(ctx, connect.NewRequest(&v1.ClaimRequest{Id: "p3"}))
			_, _ = s.payment.Advance(ctx, connect.NewRequest(&v1.AdvanceRequest{Id: "p4", To: v1.PayoutState_PAYOUT_STATE_RAIL_ACKED}))
			_, _ = s.payment.Post(ctx, connect.NewRequest(&v1.PostRequest{Id: "p5"}))
			_, _ = s.payment.GetPayout(ctx, connect.NewRequest(&v1.GetPayoutRequest{Id: "p6"}))
			_, _ = s.payment.ListPayouts(ctx, connect.NewRequest(&v1.ListPayoutsRequest{}))
			want := []gate.Call{
				{Method: "Submit", Payout: "p1", Token: "33"}, {Method: "Lookup", Payout: "p2"}, {Method: "Claim", Payout: "p3"},
				{Method: "Advance", Payout: "p4", To: "RAIL_ACKED"}, {Method: "Post", Payout: "p5"}, {Method: "GetPayout", Payout: "p6"},
				{Method: "ListPayouts"},
			}
			got := s.Calls()
			if len(got) != len(want) {
				t.Fatalf("calls %v; want %v", got, want)
			}
			for i := range want {
				if got[i] != want[i] {
					t.Errorf("call %d is %+v; want %+v", i, got[i], want[i])
				}
			}
		})
	}
}

func TestHeldRequestIsDeliveredThoughItsCallerIsGone(t *testing.T) {
	t.Parallel()
	s := open(t)
	hold := s.HoldRequest(of("p1"))
	ctx, leave := context.WithCancel(t.Context())
	defer leave()
	failed := s.submit(ctx, "p1")
	within(t, "the request is held", hold.Reached())
	nothing(t, "a held request reached the service", s.service.submits)
	leave()
	if err := within(t, "the caller leaves", failed); connect.CodeOf(err) != connect.CodeCanceled {
		t.Errorf("the caller got %v", err)
	}
	if err := <-s.submit(t.Context(), "p1"); err != nil {
		t.Errorf("the next of the same kind does not pass: %v", err)
	}
	<-s.service.submits
	hold.Let()
	answer, err := hold.Wait(t.Context())
	if err != nil || answer.Status != http.StatusOK {
		t.Fatalf("the service answered %+v, %v", answer, err)
	}
	if got := within(t, "the request is delivered", s.service.submits); got != "p1" {
		t.Errorf("delivered %q", got)
	}
}

func TestAnswersTellTheirCode(t *testing.T) {
	t.Parallel()
	s := open(t)
	s.service.refusals = map[string]proto.Message{
		"fenced": &fencelockv1.ErrorDetail{Code: fencelockv1.ErrorCode_ERROR_CODE_FENCED_OUT},
		"twice":  &v1.ErrorDetail{Code: v1.ErrorCode_ERROR_CODE_DUPLICATE},
		"plain":  &v1.Account{Id: "not a detail"},
	}
	for payout, want := range map[string]string{"p1": gate.OK, "fenced": "FENCED_OUT", "twice": "DUPLICATE", "plain": "failed_precondition"} {
		hold := s.HoldRequest(of(payout))
		hold.Let()
		<-s.submit(t.Context(), payout)
		answer, err := hold.Wait(t.Context())
		if err != nil || answer.Code() != want {
			t.Errorf("%s: %q, %v; want %q", payout, answer.Code(), err, want)
		}
		if token, err := hold.Call().Number(); err != nil || token != 33 || hold.Call().Payout != payout {
			t.Errorf("held %+v, token %d, %v", hold.Call(), token, err)
		}
	}
	if _, err := (gate.Call{Token: "x.33"}).Number(); err == nil {
		t.Error("x.33 is a token")
	}
	if token, err := (gate.Call{Token: "33.key.hash.signature"}).Number(); err != nil || token != 33 {
		t.Errorf("signed: %d, %v", token, err)
	}
	if got := (gate.Answer{Status: http.StatusBadGateway}).Code(); got != "Bad Gateway" {
		t.Errorf("no answer is %q", got)
	}
}

func TestHeldAnswerHasHadItsEffect(t *testing.T) {
	t.Parallel()
	s := open(t)
	hold := s.HoldAnswer(of("p1"))
	failed := s.submit(t.Context(), "p1")
	within(t, "the answer is held", hold.Reached())
	within(t, "the service was called", s.service.submits)
	nothing(t, "the caller has its answer", failed)
	hold.Let()
	if err := within(t, "the caller gets its answer", failed); err != nil {
		t.Errorf("the caller got %v", err)
	}
}

func TestWhatIsDroppedIsNotDelivered(t *testing.T) {
	t.Parallel()
	s := open(t)
	hold, answer := s.HoldRequest(of("p1")), s.HoldAnswer(of("p2"))
	first, second := s.submit(t.Context(), "p1"), s.submit(t.Context(), "p2")
	within(t, "the request is held", hold.Reached())
	within(t, "the answer is held", answer.Reached())
	hold.Drop()
	answer.Drop()
	hold.Let()
	if err := within(t, "the caller of the request", first); connect.CodeOf(err) != connect.CodeUnavailable {
		t.Errorf("the caller of a dropped request got %v", err)
	}
	if err := within(t, "the caller for the answer", second); connect.CodeOf(err) != connect.CodeUnavailable {
		t.Errorf("the caller of a dropped answer got %v", err)
	}
	if _, err := hold.Wait(t.Context()); !errors.Is(err, gate.ErrDropped) {
		t.Errorf("wait for a dropped request: %v", err)
	}
	if got := within(t, "the request whose answer was dropped", s.service.submits); got != "p2" {
		t.Errorf("%q was delivered", got)
	}
	nothing(t, "a dropped request reached the service", s.service.submits)
}

func TestAServiceThatIsGoneAnswersBadGateway(t *testing.T) {
	t.Parallel()
	g, err := gate.Open("http://127.0.0.1:1")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = g.Close() }()
	hold := g.HoldRequest(of("p1"))
	hold.Let()
	client := &http.Client{Transport: new(http.Transport)}
	defer client.CloseIdleConnections()
	_, err = paymentsv1connect.NewRailServiceClient(client, g.URL()).Submit(t.Context(), connect.NewRequest(&v1.SubmitRequest{Payout: "p1"}))
	if connect.CodeOf(err) != connect.CodeUnavailable {
		t.Errorf("the caller got %v", err)
	}
	if answer, err := hold.Wait(t.Context()); err != nil || answer.Status != http.StatusBadGateway {
		t.Errorf("the gate saw %+v, %v", answer, err)
	}
}

func TestCloseDropsWhatIsHeld(t *testing.T) {
	t.Parallel()
	s := open(t)
	hold := s.HoldRequest(of("p1"))
	failed := s.submit(t.Context(), "p1")
	within(t, "the request is held", hold.Reached())
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if err := within(t, "the caller", failed); connect.CodeOf(err) != connect.CodeUnavailable {
		t.Errorf("the caller got %v", err)
	}
}
