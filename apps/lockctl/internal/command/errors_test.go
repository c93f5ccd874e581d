package command_test

import (
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/types/known/durationpb"

	v1 "github.com/fencelock/fencelock/contracts/api/fencelock/v1"
)

func TestErrorsAreOneLineWithACodeOfTheirOwn(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		connect connect.Code
		detail  *v1.ErrorDetail
		code    int
		text    string
		json    string
	}{
		{
			connect.CodeFailedPrecondition,
			&v1.ErrorDetail{Code: v1.ErrorCode_ERROR_CODE_LOCK_LOST, Message: "the grant is over"},
			200, "lockctl: LOCK_LOST: the grant is over\n",
			`{"error":{"code":"LOCK_LOST","message":"the grant is over","safeToRetry":false,"ambiguous":false}}` + "\n",
		},
		{
			connect.CodeFailedPrecondition,
			&v1.ErrorDetail{Code: v1.ErrorCode_ERROR_CODE_SESSION_DEAD, Message: "the session is dead"},
			200, "lockctl: SESSION_DEAD: the session is dead\n",
			`{"error":{"code":"SESSION_DEAD","message":"the session is dead","safeToRetry":false,"ambiguous":false}}` + "\n",
		},
		{
			connect.CodeUnavailable,
			&v1.ErrorDetail{Code: v1.ErrorCode_ERROR_CODE_CONTENTION, SafeToRetry: true, Ambiguous: true, Message: "the store did not answer"},
			202, "lockctl: CONTENTION: the store did not answer (may be tried again)\n",
			`{"error":{"code":"CONTENTION","message":"the store did not answer","safeToRetry":true,"ambiguous":false}}` + "\n",
		},
		{
			connect.CodeUnavailable,
			&v1.ErrorDetail{Code: v1.ErrorCode_ERROR_CODE_NOT_LEADER, SafeToRetry: true, Message: "the store has no leader"},
			202, "lockctl: NOT_LEADER: the store has no leader (may be tried again)\n",
			`{"error":{"code":"NOT_LEADER","message":"the store has no leader","safeToRetry":true,"ambiguous":false}}` + "\n",
		},
		{
			connect.CodeResourceExhausted,
			&v1.ErrorDetail{Code: v1.ErrorCode_ERROR_CODE_TOO_MANY_WAITERS, SafeToRetry: true, RetryAfter: durationpb.New(2 * time.Second), Message: "too many waiters"},
			202, "lockctl: TOO_MANY_WAITERS: too many waiters (may be tried again after 2s)\n",
			`{"error":{"code":"TOO_MANY_WAITERS","message":"too many waiters","safeToRetry":true,"ambiguous":false,"retryAfter":"2s"}}` + "\n",
		},
		{
			connect.CodeInvalidArgument,
			&v1.ErrorDetail{Code: v1.ErrorCode_ERROR_CODE_INVALID, Message: "key: must not be\nempty", Details: map[string]string{"field": "key"}},
			203, "lockctl: INVALID: key: must not be empty\n",
			`{"error":{"code":"INVALID","message":"key: must not be empty","field":"key","safeToRetry":false,"ambiguous":false}}` + "\n",
		},
		{
			connect.CodePermissionDenied,
			&v1.ErrorDetail{Code: v1.ErrorCode_ERROR_CODE_DENIED, Message: "denied"},
			204, "lockctl: DENIED: denied\n",
			`{"error":{"code":"DENIED","message":"denied","safeToRetry":false,"ambiguous":false}}` + "\n",
		},
		{
			connect.CodeFailedPrecondition,
			&v1.ErrorDetail{Code: v1.ErrorCode_ERROR_CODE_UNSAFE_STORE, Message: "the store is not safe to grant from"},
			204, "lockctl: UNSAFE_STORE: the store is not safe to grant from\n",
			`{"error":{"code":"UNSAFE_STORE","message":"the store is not safe to grant from","safeToRetry":false,"ambiguous":false}}` + "\n",
		},
	} {
		t.Run(c.detail.GetCode().String(), func(t *testing.T) {
			t.Parallel()
			f := newFake()
			f.fail = failure(c.connect, c.detail)
			server := f.serve(t)
			if o := call(t, environ(), "inspect", "--key", "k", "--server", server); o.code != c.code || o.errors != c.text || o.out != "" {
				t.Errorf("got %+v, want code %d and %q", o, c.code, c.text)
			}
			// A stream fails by another way.
			if o := call(t, environ(), "watch", "--key", "k", "--server", server, "--json"); o.code != c.code || o.errors != c.json || o.out != "" {
				t.Errorf("got %+v, want code %d and %q", o, c.code, c.json)
			}
		})
	}
}

func TestNobodyThere(t *testing.T) {
	t.Parallel()
	o := call(t, environ(), "inspect", "--key", "k", "--server", "http://127.0.0.1:1")
	if o.code != 202 || !strings.HasPrefix(o.errors, "lockctl: CONTENTION: ") || strings.Count(o.errors, "\n") != 1 {
		t.Errorf("got %+v", o)
	}
}

func TestUsageErrors(t *testing.T) {
	t.Parallel()
	for _, line := range []string{
		"nonsense",
		"session nonsense",
		"floor nonsense",
		"inspect",
		"inspect --key k extra",
		"inspect --key k --no-such-flag",
		"inspect --key k --timeout soon",
		"inspect --key k --timeout 0",
		"release --key k --token many",
		"release --key k",
		"revoke --key k --operator olga",
		"revoke --key k --reason stuck-since-noon", // and no USER
		"list --limit -1",
		"floor raise --operator olga --reason because-of-me",
		"run --key k",
		"run -- true",
		"run --key k --grace 0s -- true",
		"run --key k --wait later -- true",
		"inspect --key k --server ftp://there",
	} {
		t.Run(line, func(t *testing.T) {
			t.Parallel()
			o := call(t, environ(), strings.Fields(line)...)
			if o.code != 203 || o.out != "" || strings.Count(o.errors, "\n") != 1 || !strings.HasPrefix(o.errors, "lockctl: ") {
				t.Errorf("got %+v", o)
			}
		})
	}
}
