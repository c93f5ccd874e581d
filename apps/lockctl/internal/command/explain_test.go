package command_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"connectrpc.com/connect"

	v1 "github.com/fencelock/fencelock/contracts/api/fencelock/v1"
)

// expect runs a command line and looks for its exit code and for a text in its one line of error.
func expect(t *testing.T, line string, code int, text string) {
	t.Helper()
	o := call(t, environ("FENCELOCK_SESSION", testSession), strings.Fields(line)...)
	if o.code != code || !strings.Contains(o.errors, text) || strings.Count(o.errors, "\n") != 1 {
		t.Errorf("%s: got %+v, want code %d and %q", line, o, code, text)
	}
}

func TestOnlyAChangeMayHaveBeenCarriedOut(t *testing.T) {
	t.Parallel()
	f := newFake()
	f.fail = failure(connect.CodeUnavailable, &v1.ErrorDetail{
		Code: v1.ErrorCode_ERROR_CODE_CONTENTION, SafeToRetry: true, Ambiguous: true, Message: "the store did not answer",
	})
	server := f.serve(t)
	for _, line := range []string{"release --key k --token 7", "revoke --key k --operator olga --reason stuck-since-noon", "session heartbeat"} {
		expect(t, line+" --server "+server, 202, "(may be tried again; this try may have been carried out)")
	}
	for _, line := range []string{"inspect --key k", "list", "revocations", "session list", "watch --key k"} {
		expect(t, line+" --server "+server, 202, "the store did not answer (may be tried again)")
	}
}

func TestNothingIsCarriedOutBeforeTLSIsAgreedOn(t *testing.T) {
	t.Parallel()
	plain := strings.TrimPrefix(newFake().serve(t), "http://")
	expect(t, "release --key k --token 7 --server https://"+plain, 202, "(may be tried again)")
	encrypted := httptest.NewTLSServer(http.NotFoundHandler())
	t.Cleanup(encrypted.Close)
	encrypted.Config.ErrorLog = nil
	expect(t, "release --key k --token 7 --server "+encrypted.URL, 202, "(may be tried again)")
}

func TestAnotherKindOfServerIsNamed(t *testing.T) {
	t.Parallel()
	other := httptest.NewServer(http.NotFoundHandler())
	t.Cleanup(other.Close)
	want := other.URL + " is not a lock server (404); the RPC port is 8470 by default"
	for _, line := range []string{"inspect", "run -- true", "watch"} {
		name, rest, _ := strings.Cut(line, " ")
		expect(t, name+" --key k --server "+other.URL+" "+rest, 203, want)
	}
	if d := call(t, environ(), "doctor", "--server", "http://127.0.0.1:1,"+other.URL); d.code != 205 || !strings.Contains(d.out, "INVALID: "+want) {
		t.Errorf("doctor: %+v", d)
	}
}

func TestNoAnswerInTimeIsSaidAsSuch(t *testing.T) {
	t.Parallel()
	silent := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body) // the end of a connection is seen only once its request is read
		<-r.Context().Done()
	}))
	t.Cleanup(silent.Close)
	for _, line := range []string{"session heartbeat", "release --key k --token 7"} {
		expect(t, line+" --timeout 200ms --server "+silent.URL, 202, "CONTENTION: the server or the store did not answer in time (")
	}
	expect(t, "run --key k --timeout 200ms --server "+silent.URL+" -- true", 202, "CONTENTION: the server or the store did not answer in time (")
}

func TestARevocationOfNothingSaysSo(t *testing.T) {
	t.Parallel()
	f := newFake()
	f.fail = failure(connect.CodeFailedPrecondition, &v1.ErrorDetail{Code: v1.ErrorCode_ERROR_CODE_LOCK_LOST, Message: "the grant is over"})
	server := f.serve(t)
	line := "revoke --key k --operator olga --reason stuck-since-noon --server " + server
	expect(t, line, 200, "LOCK_LOST: nothing revoked: default/k is free, or held under another token")
	expect(t, line+" --namespace team --expected-token 5", 200, "nothing revoked: team/k is free")
}

func TestWithoutASessionItIsSaidHowToGetOne(t *testing.T) {
	t.Parallel()
	for _, line := range []string{
		"acquire --key k", "release --key k --token 7", "extend --key k --token 7", "session heartbeat", "session close",
	} {
		o := call(t, environ(), strings.Fields(line)...)
		if o.code != 203 || !strings.Contains(o.errors, "USAGE: no session: set FENCELOCK_SESSION, or --session (lockctl session open)") {
			t.Errorf("%s: got %+v", line, o)
		}
	}
}

func TestAUsageErrorPointsToTheHelpOfItsCommand(t *testing.T) {
	t.Parallel()
	expect(t, "run --key demo", 203, "USAGE: no command: lockctl run --key KEY -- COMMAND (see lockctl run --help)")
	expect(t, "session open --no-such-flag", 203, "(see lockctl session open --help)")
	expect(t, "inspect --key k --timeout 0", 203, "(see lockctl inspect --help)")
	expect(t, "nonsense", 203, "(see lockctl --help)")
}
