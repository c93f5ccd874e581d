package guard

import (
	"errors"
	"slices"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/fencelock/fencelock/core/lock"
)

// translate turns what the client library says of a transaction into the closed set. What is not listed may have been
// carried out, or may yet be: etcd's time-outs and "server stopped" come after the proposal.
func translate(err error) error {
	is := func(names ...error) bool {
		named := rpctypes.Error(err)
		return slices.ContainsFunc(names, func(name error) bool { return errors.Is(named, name) })
	}
	e := lock.Contention("the marks did not answer", true, err)
	switch {
	case is(rpctypes.ErrDuplicateKey, rpctypes.ErrTooManyOps, rpctypes.ErrRequestTooLarge, rpctypes.ErrEmptyKey,
		rpctypes.ErrLeaseNotFound, rpctypes.ErrKeyNotFound, rpctypes.ErrValueProvided, rpctypes.ErrLeaseProvided):
		e.Code, e.Field, e.Message, e.OutcomeUnknown = lock.CodeInvalid, "operations", "are not what the store takes", false
	case is(rpctypes.ErrNoLeader):
		e.Code, e.Message, e.OutcomeUnknown = lock.CodeNotLeader, "the store of the marks has no leader", false
	case is(rpctypes.ErrNotLeader, rpctypes.ErrLeaderChanged, rpctypes.ErrTimeoutDueToLeaderFail):
		e.Code, e.Message = lock.CodeNotLeader, "the leader of the marks' store has changed"
	case is(rpctypes.ErrNoSpace, rpctypes.ErrTooManyRequests, rpctypes.ErrCorrupt):
		e.Message, e.OutcomeUnknown = "the store of the marks takes no writes", false
	case is(rpctypes.ErrInvalidAuthToken, rpctypes.ErrAuthOldRevision, rpctypes.ErrUserEmpty, rpctypes.ErrAuthFailed,
		rpctypes.ErrPermissionDenied):
		e.Message, e.OutcomeUnknown = "the store of the marks refuses the credentials", false
	case status.Code(err) == codes.ResourceExhausted:
		// Too large to be sent, or an answer too large to be read: then all was carried out.
		e.Code, e.Field, e.Message = lock.CodeInvalid, "operations", "are more than fits into one message"
	}
	return e
}
