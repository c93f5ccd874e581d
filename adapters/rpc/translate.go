package rpc

import (
	"context"
	"errors"
	"strconv"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/types/known/durationpb"

	fencelockv1 "github.com/fencelock/fencelock/contracts/api/fencelock/v1"
	"github.com/fencelock/fencelock/core/fence"
	"github.com/fencelock/fencelock/core/lock"
)

// retryHint is the pause suggested after a store that did not answer, where the service has no better idea.
const retryHint = 250 * time.Millisecond

// internalMessage is all that a caller learns about an error outside the closed set.
const internalMessage = "internal error"

// codes is the one table from the closed set to the wire. ok is false for what no server answers with:
// held is an outcome, not an error.
func codes(code lock.Code) (wire fencelockv1.ErrorCode, status connect.Code, ok bool) {
	switch code {
	case lock.CodeLost:
		return fencelockv1.ErrorCode_ERROR_CODE_LOCK_LOST, connect.CodeFailedPrecondition, true
	case lock.CodeSessionDead:
		return fencelockv1.ErrorCode_ERROR_CODE_SESSION_DEAD, connect.CodeFailedPrecondition, true
	case lock.CodeContention:
		return fencelockv1.ErrorCode_ERROR_CODE_CONTENTION, connect.CodeUnavailable, true
	case lock.CodeNotLeader:
		return fencelockv1.ErrorCode_ERROR_CODE_NOT_LEADER, connect.CodeUnavailable, true
	case lock.CodeTooManyWaiters:
		return fencelockv1.ErrorCode_ERROR_CODE_TOO_MANY_WAITERS, connect.CodeResourceExhausted, true
	case lock.CodeInvalid:
		return fencelockv1.ErrorCode_ERROR_CODE_INVALID, connect.CodeInvalidArgument, true
	case lock.CodeDenied:
		return fencelockv1.ErrorCode_ERROR_CODE_DENIED, connect.CodePermissionDenied, true
	case lock.CodeFencedOut:
		return fencelockv1.ErrorCode_ERROR_CODE_FENCED_OUT, connect.CodeFailedPrecondition, true
	case lock.CodeUnsafeStore:
		return fencelockv1.ErrorCode_ERROR_CODE_UNSAFE_STORE, connect.CodeFailedPrecondition, true
	case lock.CodeHeld:
	}
	return fencelockv1.ErrorCode_ERROR_CODE_UNSPECIFIED, connect.CodeInternal, false
}

// translate turns what a method returned into what crosses the wire. ctx is the caller's: only its own end
// makes a call canceled or deadline_exceeded; a timeout towards the store is unavailable.
func translate(ctx context.Context, err error) error {
	if err == nil {
		return nil
	}
	if already := (*connect.Error)(nil); errors.As(err, &already) && lock.CodeOf(err) == "" {
		return already
	}
	detail, status := describe(err)
	if ended := ctx.Err(); ended != nil && (status == connect.CodeUnavailable || errors.Is(err, ended)) {
		status = connect.CodeCanceled
		if errors.Is(ended, context.DeadlineExceeded) {
			status = connect.CodeDeadlineExceeded
		}
		if detail == nil {
			detail = unknownOutcome("the caller's time was up")
		}
	}
	if detail == nil {
		return plainError(status, internalMessage)
	}
	wire := connect.NewError(status, errors.New(detail.GetMessage()))
	if attached, err := connect.NewErrorDetail(detail); err == nil {
		wire.AddDetail(attached)
	}
	return wire //nolint:wrapcheck // this is the wire's form
}

// Translate turns an error into what crosses the wire, for services of others: errors of the closed set by the one
// table, all else into internal. A [fence.FencedOutError] has both tokens in its details. ctx is the caller's.
func Translate(ctx context.Context, err error) error { return translate(ctx, err) }

// plainError is an error that is about the transport, and so has no detail.
func plainError(status connect.Code, message string) error {
	return connect.NewError(status, errors.New(message)) //nolint:wrapcheck // this is the wire's form
}

// detailOf is the same for an error inside a frame, where there is no status beside the detail. What
// is outside the closed set becomes a retryable error of unknown outcome: the most careful thing that
// a client can assume.
func detailOf(err error) *fencelockv1.ErrorDetail {
	if detail, _ := describe(err); detail != nil {
		return detail
	}
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return unknownOutcome("the operation was given up")
	}
	return unknownOutcome(internalMessage)
}

// describe returns the detail of an error of the closed set and its Connect code, or (nil, internal).
func describe(err error) (*fencelockv1.ErrorDetail, connect.Code) {
	var e *lock.Error
	if !errors.As(err, &e) {
		return nil, connect.CodeInternal
	}
	wire, status, ok := codes(e.Code)
	if !ok {
		return nil, connect.CodeInternal
	}
	// The message alone, never Error(): that one includes the driver's words.
	detail := &fencelockv1.ErrorDetail{
		Code:        wire,
		SafeToRetry: e.SafeToRetry(),
		Ambiguous:   e.Ambiguous(),
		Message:     e.Message,
	}
	if e.Field != "" {
		detail.Message = e.Field + ": " + e.Message
		detail.Details = map[string]string{"field": e.Field}
	}
	if refused, ok := errors.AsType[*fence.FencedOutError](err); ok {
		detail.Details = map[string]string{
			"presented": strconv.FormatInt(int64(refused.Presented), 10),
			"highest":   strconv.FormatInt(int64(refused.Highest), 10),
		}
	}
	pause := e.RetryAfter
	if pause == 0 && status == connect.CodeUnavailable {
		pause = retryHint
	}
	if pause > 0 {
		detail.RetryAfter = durationpb.New(pause)
	}
	return detail, status
}

func unknownOutcome(message string) *fencelockv1.ErrorDetail {
	return &fencelockv1.ErrorDetail{
		Code:        fencelockv1.ErrorCode_ERROR_CODE_CONTENTION,
		SafeToRetry: true,
		Ambiguous:   true,
		RetryAfter:  durationpb.New(retryHint),
		Message:     message,
	}
}
