package client_test

import (
	"context"
	"errors"
	"net"
	"testing"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/fencelock/fencelock/adapters/client"
	v1 "github.com/fencelock/fencelock/contracts/api/fencelock/v1"
	"github.com/fencelock/fencelock/core/lock"
)

func TestEveryCodeOfTheWireIsRebuilt(t *testing.T) {
	t.Parallel()
	want := map[v1.ErrorCode]*lock.Error{
		v1.ErrorCode_ERROR_CODE_LOCK_LOST:        lock.ErrLost,
		v1.ErrorCode_ERROR_CODE_SESSION_DEAD:     lock.ErrSessionDead,
		v1.ErrorCode_ERROR_CODE_CONTENTION:       lock.ErrContention,
		v1.ErrorCode_ERROR_CODE_NOT_LEADER:       lock.ErrNotLeader,
		v1.ErrorCode_ERROR_CODE_TOO_MANY_WAITERS: lock.ErrTooManyWaiters,
		v1.ErrorCode_ERROR_CODE_INVALID:          lock.ErrInvalid,
		v1.ErrorCode_ERROR_CODE_DENIED:           lock.ErrDenied,
		v1.ErrorCode_ERROR_CODE_FENCED_OUT:       lock.ErrFencedOut,
		v1.ErrorCode_ERROR_CODE_UNSAFE_STORE:     lock.ErrUnsafeStore,
	}
	for number, name := range v1.ErrorCode_name {
		code := v1.ErrorCode(number)
		if code == v1.ErrorCode_ERROR_CODE_UNSPECIFIED {
			continue
		}
		err := client.Translate(withDetail(connect.CodeInternal, &v1.ErrorDetail{
			Code: code, Message: "m", Ambiguous: true, RetryAfter: durationpb.New(time.Second),
			Details: map[string]string{"field": "f"},
		}))
		var e *lock.Error
		if want[code] == nil || !errors.As(err, &e) || !errors.Is(err, want[code]) {
			t.Errorf("%s became %v", name, err)
			continue
		}
		if !e.OutcomeUnknown || e.RetryAfter != time.Second || e.Field != "f" || e.SafeToRetry() != want[code].SafeToRetry() {
			t.Errorf("%s lost something: %+v", name, e)
		}
	}
}

func withDetail(code connect.Code, detail *v1.ErrorDetail) error {
	err := connect.NewError(code, errors.New(detail.GetMessage()))
	d, _ := connect.NewErrorDetail(detail)
	err.AddDetail(d)
	return err
}

func TestErrorsWithoutADetailAreJudgedByWhatIsKnown(t *testing.T) {
	t.Parallel()
	refused := &net.OpError{Op: "dial", Err: errors.New("connection refused")}
	broken := &net.OpError{Op: "read", Err: errors.New("connection reset")}
	for name, c := range map[string]struct {
		err       error
		code      lock.Code
		ambiguous bool
	}{
		"never left":          {connect.NewError(connect.CodeUnavailable, refused), lock.CodeContention, false},
		"broken on the way":   {connect.NewError(connect.CodeUnavailable, broken), lock.CodeContention, true},
		"a proxy's timeout":   {connect.NewError(connect.CodeUnknown, errors.New("504")), lock.CodeContention, true},
		"deadline":            {connect.NewError(connect.CodeDeadlineExceeded, errors.New("slow")), lock.CodeContention, true},
		"a bad form":          {connect.NewError(connect.CodeInvalidArgument, errors.New("bad")), lock.CodeInvalid, false},
		"not a lock server":   {connect.NewError(connect.CodeUnimplemented, errors.New("404")), lock.CodeInvalid, false},
		"no credentials":      {connect.NewError(connect.CodeUnauthenticated, errors.New("who")), lock.CodeDenied, false},
		"too much":            {connect.NewError(connect.CodeResourceExhausted, errors.New("big")), lock.CodeTooManyWaiters, false},
		"a foreign error":     {broken, lock.CodeContention, true},
		"an error of the set": {lock.ErrLost, lock.CodeLost, false},
		"a later retryable code": {withDetail(connect.CodeUnavailable, &v1.ErrorDetail{Code: 99, SafeToRetry: true}),
			lock.CodeContention, false},
		"a later final code": {withDetail(connect.CodeUnavailable, &v1.ErrorDetail{Code: 99}), lock.CodeInvalid, false},
	} {
		err := client.Translate(c.err)
		if lock.CodeOf(err) != c.code || lock.IsAmbiguous(err) != c.ambiguous {
			t.Errorf("%s: %v (%s, ambiguous %v), want %s, %v",
				name, err, lock.CodeOf(err), lock.IsAmbiguous(err), c.code, c.ambiguous)
		}
	}
	if client.Translate(nil) != nil {
		t.Error("nil became an error")
	}
	canceled := client.Translate(connect.NewError(connect.CodeCanceled, context.Canceled))
	if !errors.Is(canceled, context.Canceled) {
		t.Errorf("%v hides the context's error", canceled)
	}
}
