package rpc_test

import (
	"testing"
	"time"

	"connectrpc.com/connect"
	"go.uber.org/goleak"

	fencelockv1 "github.com/fencelock/fencelock/contracts/api/fencelock/v1"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func requestWait(session string, wait time.Duration) *connect.Request[fencelockv1.AcquireRequest] {
	return connect.NewRequest(opAcquire(0, session, heldKey, "r1", wait).GetAcquire())
}
