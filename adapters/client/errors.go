package client

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"time"

	"connectrpc.com/connect"

	v1 "github.com/fencelock/fencelock/contracts/api/fencelock/v1"
	"github.com/fencelock/fencelock/core/lock"
)

// HeldError says who stands in the way. It matches [lock.ErrHeld]. It is news of
// the past: by the time it is read, the holder may have gone.
type HeldError struct {
	Key   lock.Key
	Owner lock.Owner
	Token lock.Token
	// Since is for people; no decision rests on it.
	Since time.Time
	// Waiters is how many wait for the key on the server that answered.
	Waiters int
	// SessionHash identifies the holder's session without giving access to it.
	SessionHash string
}

// Error implements error.
func (e *HeldError) Error() string {
	return fmt.Sprintf("%s is held by %s since %s (token %d)",
		e.Key, e.Owner, e.Since.Format(time.RFC3339), e.Token)
}

// Unwrap makes errors.Is(err, lock.ErrHeld) true.
func (e *HeldError) Unwrap() error { return lock.ErrHeld }

func heldError(key lock.Key, h *v1.Held) *HeldError {
	return &HeldError{
		Key:         key,
		Owner:       lock.Owner(h.GetOwner()),
		Token:       lock.Token(h.GetToken()),
		Since:       h.GetAcquiredAt().AsTime(),
		Waiters:     int(h.GetWaiters()),
		SessionHash: h.GetSessionHash(),
	}
}

var errClosed = &lock.Error{Code: lock.CodeInvalid, Message: "the client is closed"}

// interrupted is the error of a call that its context ended. errors.Is finds
// the context's own error in it.
func interrupted(cause error) *lock.Error {
	if known, ok := errors.AsType[*lock.Error](cause); ok {
		return known
	}
	return lock.Contention("the call was given up", true, cause)
}

// settled says that what an error left unknown has been, or is being, withdrawn.
func settled(err error) error {
	var e *lock.Error
	if !errors.As(err, &e) || !e.OutcomeUnknown {
		return err
	}
	known := *e
	known.OutcomeUnknown = false
	return &known
}

// codeOf is the one table from the wire's codes to the closed set.
func codeOf(code v1.ErrorCode) (known lock.Code, ok bool) {
	switch code {
	case v1.ErrorCode_ERROR_CODE_LOCK_LOST:
		return lock.CodeLost, true
	case v1.ErrorCode_ERROR_CODE_SESSION_DEAD:
		return lock.CodeSessionDead, true
	case v1.ErrorCode_ERROR_CODE_CONTENTION:
		return lock.CodeContention, true
	case v1.ErrorCode_ERROR_CODE_NOT_LEADER:
		return lock.CodeNotLeader, true
	case v1.ErrorCode_ERROR_CODE_TOO_MANY_WAITERS:
		return lock.CodeTooManyWaiters, true
	case v1.ErrorCode_ERROR_CODE_INVALID:
		return lock.CodeInvalid, true
	case v1.ErrorCode_ERROR_CODE_DENIED:
		return lock.CodeDenied, true
	case v1.ErrorCode_ERROR_CODE_FENCED_OUT:
		return lock.CodeFencedOut, true
	case v1.ErrorCode_ERROR_CODE_UNSAFE_STORE:
		return lock.CodeUnsafeStore, true
	case v1.ErrorCode_ERROR_CODE_UNSPECIFIED:
	}
	return "", false
}

// fromDetail rebuilds the service's error.
func fromDetail(d *v1.ErrorDetail) *lock.Error {
	code, known := codeOf(d.GetCode())
	if !known { // a newer server: its own word on retrying decides
		code = lock.CodeInvalid
		if d.GetSafeToRetry() {
			code = lock.CodeContention
		}
	}
	field := d.GetDetails()["field"]
	return &lock.Error{
		Code: code,
		// On the wire the message names the field by itself; Error adds it again.
		Message:        strings.TrimPrefix(d.GetMessage(), field+": "),
		Field:          field,
		OutcomeUnknown: d.GetAmbiguous(),
		RetryAfter:     max(0, d.GetRetryAfter().AsDuration()),
	}
}

// Translate rebuilds the service's error from one that a raw client ([Client.Sessions],
// [Client.Locks], [Client.Admin]) returned. An error that did not come
// from the service, such as a broken connection, is [lock.ErrContention],
// ambiguous unless the request provably never left. nil stays nil.
func Translate(err error) error {
	if err == nil {
		return nil
	}
	var wire *connect.Error
	if !errors.As(err, &wire) {
		if _, ok := errors.AsType[*lock.Error](err); ok {
			return err
		}
		return lock.Contention("the call failed", !notSent(err), err)
	}
	for _, detail := range wire.Details() {
		if value, bad := detail.Value(); bad == nil {
			if d, ok := value.(*v1.ErrorDetail); ok {
				return fromDetail(d)
			}
		}
	}
	return fromCode(wire)
}

// fromCode judges an error without a detail: it comes from the transport, a
// proxy, or Connect itself.
func fromCode(err *connect.Error) *lock.Error {
	e := &lock.Error{Message: err.Message()}
	switch err.Code() {
	case connect.CodeInvalidArgument, connect.CodeOutOfRange, connect.CodeUnimplemented, connect.CodeNotFound:
		e.Code = lock.CodeInvalid
	case connect.CodePermissionDenied, connect.CodeUnauthenticated:
		e.Code = lock.CodeDenied
	case connect.CodeResourceExhausted:
		e.Code = lock.CodeTooManyWaiters
	default:
		e.Code = lock.CodeContention
		e.OutcomeUnknown = !notSent(err)
		e.Message = "no answer from the server"
		e.Cause = err
	}
	return e
}

// notSent reports whether the request provably never reached a server.
func notSent(err error) bool {
	var op *net.OpError
	return errors.As(err, &op) && op.Op == "dial" && !errors.Is(err, context.Canceled)
}
