package graph_test

import (
	"bufio"
	"io"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"connectrpc.com/connect"

	paymentsv1 "github.com/fencelock/fencelock/contracts/api/fencelock/payments/v1"
	"github.com/fencelock/fencelock/contracts/api/fencelock/payments/v1/paymentsv1connect"
)

// TestAProxyThatIsKilledWhileItSends: the real program dies between sending and outcome. The next one never sends again, and finds out.
func TestAProxyThatIsKilledWhileItSends(t *testing.T) {
	t.Parallel()
	program := filepath.Join(t.TempDir(), "rail-proxy")
	if out, err := exec.CommandContext(t.Context(), "go", "build", "-o", program, "../../cmd/rail-proxy").CombinedOutput(); err != nil {
		t.Fatalf("build: %v: %s", err, out)
	}
	stub := startStub(t)
	arrived, held := make(chan struct{}, 1), make(chan struct{})
	release := sync.OnceFunc(func() { close(held) })
	network := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		if r.Method == http.MethodPost {
			arrived <- struct{}{}
			<-held
		}
		forward(t, w, r, stub, body)
	}))
	defer network.Close()
	defer release()
	url := database(t)

	process := exec.CommandContext(t.Context(), program, append(free("rail.proxy"), "--rail.proxy.rail="+network.URL)...)
	process.Env = append(process.Environ(), "FENCELOCK_RAIL_PROXY_URL="+url)
	output, err := process.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := process.Start(); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(output).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	address, _, _ := strings.Cut(strings.TrimPrefix(line, "rail-proxy ready: rpc "), ",")
	killed := make(chan error, 1)
	go func() {
		rail := paymentsv1connect.NewRailServiceClient(stub.client, address)
		_, err := rail.Submit(t.Context(), with(&paymentsv1.SubmitRequest{Payout: "p", Account: "a", Amount: 5, Destination: "d"}, 33))
		killed <- err
	}()
	<-arrived
	if err := process.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = process.Wait() // says that it was killed
	if err := <-killed; err == nil {
		t.Error("a killed proxy has answered")
	}

	next := startProxy(t, url, network.URL).rail()
	lookup := func(token int) *paymentsv1.Submission {
		t.Helper()
		found, err := next.Lookup(t.Context(), with(&paymentsv1.LookupRequest{Payout: "p", Account: "a"}, token))
		if err != nil {
			t.Fatal(err)
		}
		return found.Msg.GetSubmission()
	}
	if s := lookup(34); s == nil || s.GetOutcome() != 0 || s.GetToken() != 33 {
		t.Errorf("after the death: %v", s)
	}
	_, err = next.Submit(t.Context(), with(&paymentsv1.SubmitRequest{Payout: "p", Account: "a", Amount: 5, Destination: "d"}, 34))
	expect(t, "again", err, "already_exists DUPLICATE")
	release() // what was on its way arrives
	for s := lookup(34); s.GetOutcome() != paymentsv1.SubmissionOutcome_SUBMISSION_OUTCOME_ACKED; s = lookup(34) {
		if s.GetOutcome() != 0 {
			t.Fatalf("found out: %v", s)
		}
	}
	if n := stub.metric(`rail_stub_transfer_total{outcome="executed"}`); n != "1" {
		t.Errorf("%s transfers", n)
	}
	if _, err := next.ListSubmissions(t.Context(), connect.NewRequest(&paymentsv1.ListSubmissionsRequest{})); err != nil {
		t.Error(err)
	}
}

// forward passes a request on to the rail, whether or not its sender still lives.
func forward(t *testing.T, w http.ResponseWriter, r *http.Request, to *running, body []byte) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), r.Method, to.rpc+r.URL.RequestURI(), strings.NewReader(string(body)))
	if err != nil {
		t.Error(err)
		return
	}
	response, err := to.client.Do(request)
	if err != nil {
		t.Error(err)
		return
	}
	defer response.Body.Close()
	w.WriteHeader(response.StatusCode)
	_, _ = io.Copy(w, response.Body)
}
