package lock

import (
	"errors"
	"time"
)

// Code is one member of the closed set of errors.
type Code string

// The closed set. No port, service or client returns an error outside it.
const (
	CodeHeld           Code = "HELD"
	CodeLost           Code = "LOCK_LOST"
	CodeSessionDead    Code = "SESSION_DEAD"
	CodeContention     Code = "CONTENTION"
	CodeNotLeader      Code = "NOT_LEADER"
	CodeTooManyWaiters Code = "TOO_MANY_WAITERS"
	CodeInvalid        Code = "INVALID"
	CodeDenied         Code = "DENIED"
	CodeFencedOut      Code = "FENCED_OUT"
	CodeUnsafeStore    Code = "UNSAFE_STORE"
)

// The sentinels, for errors.Is. Values that carry more are [*Error] of the same code.
var (
	// ErrHeld: someone else holds the key. An outcome, not a failure.
	ErrHeld = &Error{Code: CodeHeld, Message: "held by another session"}
	// ErrLost: the grant is over. Terminal.
	ErrLost = &Error{Code: CodeLost, Message: "the grant is over"}
	// ErrSessionDead: no live session has this id. Terminal.
	ErrSessionDead = &Error{Code: CodeSessionDead, Message: "the session is dead"}
	// ErrContention: the store could not be asked, was too slow, or lost the answer. Retryable.
	ErrContention = &Error{Code: CodeContention, Message: "the store did not answer"}
	// ErrNotLeader: the store has no leader at the moment. Retryable.
	ErrNotLeader = &Error{Code: CodeNotLeader, Message: "the store has no leader"}
	// ErrTooManyWaiters: the wait queue, or another limit named in the message, is full. Retryable later.
	ErrTooManyWaiters = &Error{Code: CodeTooManyWaiters, Message: "too many waiters"}
	// ErrInvalid: the request breaks a rule of form; nothing was asked or changed.
	ErrInvalid = &Error{Code: CodeInvalid, Message: "invalid request"}
	// ErrDenied: the caller may not do this.
	ErrDenied = &Error{Code: CodeDenied, Message: "denied"}
	// ErrFencedOut: a resource refused a token that is not above its fence.
	ErrFencedOut = &Error{Code: CodeFencedOut, Message: "fenced out"}
	// ErrUnsafeStore: the store may have gone back in time; grants are stopped
	// until an operator raises the token floor.
	ErrUnsafeStore = &Error{Code: CodeUnsafeStore, Message: "the store is not safe to grant from"}
)

// Error is the one error type of the service. Codes decide, messages inform.
type Error struct {
	Code Code
	// Message is safe to show to any caller: no key of others, no SQL, no address.
	Message string
	// Field names the offending input of an INVALID error.
	Field string
	// OutcomeUnknown is set where the store may or may not have carried the call out.
	OutcomeUnknown bool
	// RetryAfter suggests how long to wait before the next try; 0 means no suggestion.
	RetryAfter time.Duration
	// Cause is the driver's error. It never crosses the wire.
	Cause error
}

// Error implements error.
func (e *Error) Error() string {
	text := e.Message
	if e.Field != "" {
		text = e.Field + ": " + text
	}
	if e.Cause != nil {
		text += ": " + e.Cause.Error()
	}
	return text
}

// Unwrap keeps the driver's error reachable with errors.As.
func (e *Error) Unwrap() error { return e.Cause }

// Is makes errors.Is match by code against the sentinels.
func (e *Error) Is(target error) bool {
	t, ok := target.(*Error)
	return ok && t.Code == e.Code
}

// SafeToRetry reports whether the same acquire (never the side effect that it
// protects) may be sent again with the same request id.
func (e *Error) SafeToRetry() bool {
	switch e.Code {
	case CodeContention, CodeNotLeader, CodeTooManyWaiters, CodeHeld:
		return true
	case CodeLost, CodeSessionDead, CodeInvalid, CodeDenied, CodeFencedOut, CodeUnsafeStore:
	}
	return false
}

// Ambiguous reports whether the store may or may not have carried the call out.
func (e *Error) Ambiguous() bool { return e.OutcomeUnknown }

// Invalid returns an [ErrInvalid] that names the offending field.
func Invalid(field, message string) *Error {
	return &Error{Code: CodeInvalid, Field: field, Message: message}
}

// Contention returns an [ErrContention]; unknown says that the store may
// have carried the call out.
func Contention(message string, unknown bool, cause error) *Error {
	return &Error{Code: CodeContention, Message: message, OutcomeUnknown: unknown, Cause: cause}
}

// CodeOf returns the code of err, or "" if err is nil or not of the set.
func CodeOf(err error) Code {
	if e, ok := errors.AsType[*Error](err); ok {
		return e.Code
	}
	return ""
}

// IsAmbiguous reports whether err says that its outcome is unknown.
func IsAmbiguous(err error) bool {
	e, ok := errors.AsType[*Error](err)
	return ok && e.OutcomeUnknown
}

// IsRetryable reports whether err says that the same call may be sent again.
func IsRetryable(err error) bool {
	e, ok := errors.AsType[*Error](err)
	return ok && e.SafeToRetry()
}
