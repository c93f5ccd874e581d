package model

import (
	"errors"
	"net/http"
	"slices"
	"strconv"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	v1 "github.com/fencelock/fencelock/contracts/api/fencelock/payments/v1"
	lockv1 "github.com/fencelock/fencelock/contracts/api/fencelock/v1"
)

// Service is one of the two.
type Service string

// The services.
const (
	Payments Service = "payments"
	Rail     Service = "rail"
)

// Call is a call as it arrived.
type Call struct {
	Service Service
	// Method as the contract names it. Advance has the state that it leads to behind it: "Advance RAIL_ACKED".
	Method  string
	Payout  string
	Account string
	// Token that it carried; 0 for none.
	Token int64
	// N counts the calls of that method and payout from 1.
	N int
	// Refused by a fence.
	Refused bool
}

// Passage is what becomes of a call.
type Passage struct {
	// RequestLost: it is not carried out and not answered.
	RequestLost bool
	// AnswerLost: it is carried out and not answered.
	AnswerLost bool
	// Refuse answers with this instead of carrying it out.
	Refuse error
	// Before is done before it is carried out, After before it is answered.
	Before, After func()
}

// Weather decides what becomes of each call from now on.
func (w *World) Weather(weather func(Call) Passage) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.weather = weather
}

// Down makes a service answer nothing, or again everything.
func (w *World) Down(service Service, down bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.down[service] = down
}

// Calls returns the calls so far, reads excepted, in the order of their arrival.
func (w *World) Calls() []Call {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(w.calls), func(c Call) bool { return c.Token == 0 })
}

// Count is how many calls of a method there were.
func (w *World) Count(method string) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	n := 0
	for _, c := range w.calls {
		if c.Method == method {
			n++
		}
	}
	return n
}

// carry takes a call through the weather. do runs under mu.
func carry[A any](w *World, c Call, do func() (*A, error)) (*connect.Response[A], error) {
	w.mu.Lock()
	down := w.down[c.Service]
	c.N = 1
	for _, other := range w.calls {
		if other.Method == c.Method && other.Payout == c.Payout {
			c.N++
		}
	}
	index := len(w.calls)
	w.calls = append(w.calls, c)
	weather := w.weather
	w.mu.Unlock()
	passage := weather(c)
	if passage.Before != nil {
		passage.Before()
	}
	if down || passage.RequestLost {
		panic(http.ErrAbortHandler) // the connection ends without an answer
	}
	if passage.Refuse != nil {
		return nil, passage.Refuse
	}
	w.mu.Lock()
	answer, err := do()
	if isFencedOut(err) {
		w.refused++
		w.calls[index].Refused = true
	}
	w.mu.Unlock()
	if passage.After != nil {
		passage.After()
	}
	if passage.AnswerLost {
		panic(http.ErrAbortHandler)
	}
	if err != nil {
		return nil, err
	}
	return connect.NewResponse(answer), nil
}

// token reads the header. 0 means that there is none.
func token(h http.Header) int64 {
	n, err := strconv.ParseInt(h.Get("Fencelock-Token"), 10, 64)
	if err != nil {
		return 0
	}
	return n
}

// FencedOut is the answer of a fence.
func FencedOut() error {
	return detailed(connect.CodeFailedPrecondition, "fenced out", &lockv1.ErrorDetail{
		Code: lockv1.ErrorCode_ERROR_CODE_FENCED_OUT, Message: "fenced out",
	})
}

// NotAnswered is the answer of a service that cannot serve now.
func NotAnswered() error {
	return detailed(connect.CodeUnavailable, "the store did not answer", &lockv1.ErrorDetail{
		Code: lockv1.ErrorCode_ERROR_CODE_CONTENTION, Message: "the store did not answer", SafeToRetry: true, Ambiguous: true,
	})
}

func isFencedOut(err error) bool {
	var wire *connect.Error
	if !errors.As(err, &wire) {
		return false
	}
	for _, d := range wire.Details() {
		if value, bad := d.Value(); bad == nil {
			if e, ok := value.(*lockv1.ErrorDetail); ok {
				return e.GetCode() == lockv1.ErrorCode_ERROR_CODE_FENCED_OUT
			}
		}
	}
	return false
}

func noToken() error {
	return detailed(connect.CodeInvalidArgument, "token: must be positive", &lockv1.ErrorDetail{
		Code: lockv1.ErrorCode_ERROR_CODE_INVALID, Message: "token: must be positive",
	})
}

func refusal(status connect.Code, code v1.ErrorCode, state v1.PayoutState) error {
	return detailed(status, code.String(), &v1.ErrorDetail{Code: code, State: state})
}

// NotFound is the answer about what there is not.
func NotFound() error {
	return refusal(connect.CodeNotFound, v1.ErrorCode_ERROR_CODE_NOT_FOUND, v1.PayoutState_PAYOUT_STATE_UNSPECIFIED)
}

func wrongState(p *v1.Payout) error {
	return refusal(connect.CodeFailedPrecondition, v1.ErrorCode_ERROR_CODE_WRONG_STATE, p.GetState())
}

func different() error {
	return refusal(connect.CodeAlreadyExists, v1.ErrorCode_ERROR_CODE_DIFFERENT, v1.PayoutState_PAYOUT_STATE_UNSPECIFIED)
}

func stamp() *timestamppb.Timestamp { return timestamppb.Now() }

func detailed(status connect.Code, message string, detail proto.Message) error {
	wire := connect.NewError(status, errors.New(message))
	if d, err := connect.NewErrorDetail(detail); err == nil {
		wire.AddDetail(d)
	}
	return wire //nolint:wrapcheck // this is the wire's form
}
