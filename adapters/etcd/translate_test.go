package etcd_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/fencelock/fencelock/adapters/etcd"
	"github.com/fencelock/fencelock/core/lock"
)

func TestTranslate(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name    string
		err     error
		code    lock.Code
		unknown bool // of a write
	}{
		{"no leader", rpctypes.ErrNoLeader, lock.CodeNotLeader, false},
		{"no leader, from a stream", rpctypes.ErrGRPCNoLeader, lock.CodeNotLeader, false},
		{"leader changed", rpctypes.ErrGRPCLeaderChanged, lock.CodeNotLeader, true},
		{"leader failed", rpctypes.ErrTimeoutDueToLeaderFail, lock.CodeNotLeader, true},
		{"connection lost", rpctypes.ErrTimeoutDueToConnectionLost, lock.CodeContention, true},
		{"timed out in the store", rpctypes.ErrTimeout, lock.CodeContention, true},
		{"store stopped", rpctypes.ErrGRPCStopped, lock.CodeContention, true},
		{"no space", rpctypes.ErrNoSpace, lock.CodeContention, false},
		{"overloaded", rpctypes.ErrTooManyRequests, lock.CodeContention, false},
		{"lease ended before its use", rpctypes.ErrLeaseNotFound, lock.CodeContention, false},
		{"token expired", rpctypes.ErrGRPCInvalidAuthToken, lock.CodeContention, false},
		{"permission denied", rpctypes.ErrPermissionDenied, lock.CodeContention, false},
		{"deadline", context.DeadlineExceeded, lock.CodeContention, true},
		{"cancelled", fmt.Errorf("call: %w", context.Canceled), lock.CodeContention, true},
		{"deadline at the server", status.Error(codes.DeadlineExceeded, "slow"), lock.CodeContention, true},
		{"connection broken", status.Error(codes.Unavailable, "error reading from server: EOF"), lock.CodeContention, true},
		{"anything else", errors.New("surprise"), lock.CodeContention, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			for _, wrote := range []bool{false, true} {
				err := etcd.Translate(c.err, wrote)
				if lock.CodeOf(err) != c.code || !lock.IsRetryable(err) {
					t.Errorf("got %v, code %s, want a retryable %s", err, lock.CodeOf(err), c.code)
				}
				if got := lock.IsAmbiguous(err); got != (c.unknown && wrote) {
					t.Errorf("outcome unknown is %v of a write %v", got, wrote)
				}
				if !errors.Is(err, c.err) {
					t.Error("the driver's error is out of reach")
				}
			}
		})
	}
	if err := etcd.Translate(nil, true); err != nil {
		t.Errorf("no error became %v", err)
	}
	if err := etcd.Translate(fmt.Errorf("wrapped: %w", lock.ErrSessionDead), true); !errors.Is(err, lock.ErrSessionDead) {
		t.Errorf("an error of the set became %v", err)
	}
}
