package etcd

import (
	"context"
	"errors"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/fencelock/fencelock/core/lock"
)

// errKind is the cause where a grant's value does not start with its kind.
var errKind = errors.New("the value has no valid kind")

// errAuditKey is the cause where a record stands at a key that no act has.
var errAuditKey = errors.New("the key is not one of an audit record")

// access says what a call could have changed if its answer is missing.
type access bool

const (
	reads  access = false
	writes access = true
)

// verdict is what some of etcd's errors mean to a caller.
type verdict struct {
	code    lock.Code
	message string
	// refused: the store surely has not carried the call out.
	refused bool
	errs    []error
}

// verdicts lists what etcd says by name. What is not listed may have been
// carried out: etcd's time-outs and "server stopped" come after the proposal.
func verdicts() []verdict {
	return []verdict{
		{lock.CodeNotLeader, "the store has no leader", true, []error{rpctypes.ErrNoLeader}},
		{lock.CodeNotLeader, "the store's leader has changed", false, []error{
			rpctypes.ErrNotLeader, rpctypes.ErrLeaderChanged, rpctypes.ErrTimeoutDueToLeaderFail,
		}},
		{lock.CodeContention, "the store is out of space", true, []error{rpctypes.ErrNoSpace}},
		{lock.CodeContention, "the store is overloaded", true, []error{rpctypes.ErrTooManyRequests}},
		{lock.CodeContention, "a lease ended before it was used", true, []error{rpctypes.ErrLeaseNotFound}},
		{lock.CodeContention, "the store reports corruption", true, []error{rpctypes.ErrCorrupt}},
		{lock.CodeContention, "the store refuses the server's credentials", true, []error{
			rpctypes.ErrInvalidAuthToken, rpctypes.ErrAuthOldRevision, rpctypes.ErrUserEmpty,
			rpctypes.ErrAuthFailed, rpctypes.ErrPermissionDenied,
		}},
		{lock.CodeContention, "the store refuses the request", true, []error{
			rpctypes.ErrRequestTooLarge, rpctypes.ErrCompacted, rpctypes.ErrFutureRev, rpctypes.ErrNotCapable,
		}},
	}
}

// judge finds the verdict on an error that etcd has a name for.
func judge(err error) (v verdict, known bool) {
	named := rpctypes.Error(err)
	for _, v := range verdicts() {
		for _, e := range v.errs {
			if errors.Is(named, e) {
				return v, true
			}
		}
	}
	return verdict{}, false
}

// translate turns what the client library says into the closed set. It never
// yields lost, dead or held: those are answers of the store, not failures to
// get one (clause FAIL-01).
func translate(err error, did access) error {
	if err == nil {
		return nil
	}
	if ours, ok := errors.AsType[*lock.Error](err); ok {
		return ours
	}
	if v, known := judge(err); known {
		return &lock.Error{Code: v.code, Message: v.message, OutcomeUnknown: bool(did) && !v.refused, Cause: err}
	}
	message := "the store did not answer"
	if timedOut(err) {
		message = "the store did not answer in time"
	}
	return lock.Contention(message, bool(did), err)
}

func timedOut(err error) bool {
	if errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) {
		return true
	}
	code := status.Code(err)
	return code == codes.DeadlineExceeded || code == codes.Canceled
}

// isLeaseNotFound reports whether the store says that a lease does not exist.
func isLeaseNotFound(err error) bool {
	return errors.Is(rpctypes.Error(err), rpctypes.ErrLeaseNotFound)
}
