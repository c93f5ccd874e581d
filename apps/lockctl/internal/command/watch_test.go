package command_test

import (
	"strings"
	"testing"

	"connectrpc.com/connect"

	v1 "github.com/fencelock/fencelock/contracts/api/fencelock/v1"
)

func TestAWatchGoesOnAtTheNextServerAndPrintsOnlyChanges(t *testing.T) {
	t.Parallel()
	draining, next := newFake(), newFake()
	draining.endWatch = failure(connect.CodeUnavailable, &v1.ErrorDetail{
		Code: v1.ErrorCode_ERROR_CODE_CONTENTION, SafeToRetry: true, Message: "this server is draining",
	})
	draining.watched = []*v1.InspectResponse{{Held: true, Grant: grant("k", 41)}}
	next.watched = []*v1.InspectResponse{{Held: true, Grant: grant("k", 41)}, {Held: true, Grant: grant("k", 42)}}
	o := call(t, environ(), "watch", "--key", "k", "--server", draining.serve(t)+","+next.serve(t))
	if o.code != 204 || strings.Count(o.out, "token 41,") != 1 || strings.Count(o.out, "\n") != 2 || !strings.Contains(o.out, "token 42,") {
		t.Errorf("got %+v", o)
	}
}

func TestAWatchThatNobodyAnswersEnds(t *testing.T) {
	t.Parallel()
	o := call(t, environ(), "watch", "--key", "k", "--server", "http://127.0.0.1:1,http://127.0.0.1:1")
	if o.code != 202 || o.out != "" {
		t.Errorf("got %+v", o)
	}
}
