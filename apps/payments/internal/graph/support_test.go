package graph_test

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"connectrpc.com/connect"
	"go.uber.org/goleak"

	"github.com/fencelock/fencelock/apps/payments/internal/graph"
	"github.com/fencelock/fencelock/apps/program"
	paymentsv1 "github.com/fencelock/fencelock/contracts/api/fencelock/payments/v1"
	"github.com/fencelock/fencelock/contracts/api/fencelock/payments/v1/paymentsv1connect"
	fencelockv1 "github.com/fencelock/fencelock/contracts/api/fencelock/v1"
	"github.com/fencelock/fencelock/tools/testenv"
)

// eventually is far more than anything takes, also on a busy machine.
const eventually = 60 * time.Second

func TestMain(m *testing.M) { goleak.VerifyTestMain(testenv.Main(m)) }

// journal collects what a program writes.
type journal struct {
	mu   sync.Mutex
	data bytes.Buffer
}

func (j *journal) Write(p []byte) (int, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.data.Write(p)
}

func (j *journal) String() string {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.data.String()
}

// running is a program in this process.
type running struct {
	t *testing.T
	// rpc and admin are its addresses, as the ready line has them, and line is that line.
	rpc, admin, line string
	log              *journal
	client           *http.Client

	signals chan os.Signal
	done    chan int
	stopped sync.Once
	code    int
}

// start runs a program and waits until it is ready. It ends with the test.
func start[C program.Config](t *testing.T, p program.Program[C], args ...string) *running {
	t.Helper()
	r := &running{
		t: t, log: &journal{}, signals: make(chan os.Signal, 2), done: make(chan int, 1),
		client: &http.Client{Transport: &http.Transport{DisableKeepAlives: true}},
	}
	reader, writer := io.Pipe()
	go func() {
		r.done <- p.Run(args, nil, writer, r.log, r.signals)
		_ = writer.Close()
	}()
	lines := bufio.NewScanner(reader)
	if !lines.Scan() {
		t.Fatalf("%s did not start: %d %s", p.Name, <-r.done, r.log)
	}
	r.line = lines.Text()
	t.Cleanup(func() { r.stop() })
	rest, ok := strings.CutPrefix(r.line, p.Name+" ready: ")
	if !ok {
		t.Fatalf("the ready line is %q", r.line)
	}
	parts := strings.SplitN(rest, ", ", 3)
	_, r.rpc, _ = strings.Cut(parts[0], " ")
	r.admin = strings.TrimPrefix(parts[1], "admin ")
	return r
}

// stop asks the program to stop, as a signal does, and returns its exit code.
func (r *running) stop() int {
	r.stopped.Do(func() {
		r.signals <- syscall.SIGTERM
		r.code = <-r.done
	})
	return r.code
}

// get asks the admin door.
func (r *running) get(path string) (int, string) {
	r.t.Helper()
	request, err := http.NewRequestWithContext(r.t.Context(), http.MethodGet, r.admin+path, nil)
	if err != nil {
		r.t.Fatal(err)
	}
	response, err := r.client.Do(request)
	if err != nil {
		return 0, err.Error()
	}
	defer response.Body.Close()
	body, _ := io.ReadAll(response.Body)
	return response.StatusCode, string(body)
}

// metric is the value of a series, as text.
func (r *running) metric(series string) string {
	r.t.Helper()
	_, body := r.get("/metrics")
	for line := range strings.Lines(body) {
		if value, ok := strings.CutPrefix(line, series+" "); ok {
			return strings.TrimSpace(value)
		}
	}
	return "not there"
}

// await asks whether the program is ready until the answer is the one that is wanted.
func (r *running) await(want int) string {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(r.t.Context(), eventually)
	defer cancel()
	for {
		status, body := r.get("/readyz")
		if status == want {
			return body
		}
		if ctx.Err() != nil {
			r.t.Fatalf("/readyz still says %d %s", status, body)
		}
	}
}

// database is an empty one.
func database(t *testing.T) string {
	t.Helper()
	return testenv.Postgres(t).Database(t)
}

// free are the flags that let a program choose its ports.
func free(section string) []string {
	return []string{"--" + section + ".addr=127.0.0.1:0", "--" + section + ".admin-addr=127.0.0.1:0"}
}

func startPayment(t *testing.T, url string, args ...string) *running {
	t.Helper()
	return start(t, graph.Payment(), append(append(free("payment"), "--payment.url="+url), args...)...)
}

func startProxy(t *testing.T, url, rail string, args ...string) *running {
	t.Helper()
	return start(t, graph.Proxy(), append(append(free("rail.proxy"), "--rail.proxy.url="+url, "--rail.proxy.rail="+rail), args...)...)
}

func startStub(t *testing.T, args ...string) *running {
	t.Helper()
	file := "--rail.stub.log-file=" + filepath.Join(t.TempDir(), "log")
	return start(t, graph.Stub(), append(append(free("rail.stub"), file), args...)...)
}

func (r *running) payments() paymentsv1connect.PaymentServiceClient {
	return paymentsv1connect.NewPaymentServiceClient(r.client, r.rpc)
}

func (r *running) rail() paymentsv1connect.RailServiceClient {
	return paymentsv1connect.NewRailServiceClient(r.client, r.rpc)
}

// with is a request with the text of a token.
func with[M any](message *M, token any) *connect.Request[M] {
	request := connect.NewRequest(message)
	request.Header().Set("Fencelock-Token", fmt.Sprint(token))
	return request
}

// seed makes the account "a" of 1000 and its payouts "p" of 100 and "q" of 50.
func (r *running) seed() {
	r.t.Helper()
	ctx, c := r.t.Context(), r.payments()
	_, err := c.OpenAccount(ctx, connect.NewRequest(&paymentsv1.OpenAccountRequest{Id: "a", Balance: 1000}))
	for id, amount := range map[string]int64{"p": 100, "q": 50} {
		_, err2 := c.CreatePayout(ctx, connect.NewRequest(&paymentsv1.CreatePayoutRequest{Id: id, Account: "a", Amount: amount, Destination: "d"}))
		err = errors.Join(err, err2)
	}
	if err != nil {
		r.t.Fatal(err)
	}
}

// claim claims the payout "p".
func (r *running) claim(token any) (*connect.Response[paymentsv1.ClaimResponse], error) {
	return r.payments().Claim(r.t.Context(), with(&paymentsv1.ClaimRequest{Id: "p", Account: "a"}, token))
}

// said is what an error says on the wire: Connect code, and the code of its detail.
func said(err error) string {
	e, ok := errors.AsType[*connect.Error](err)
	if !ok {
		return fmt.Sprint(err)
	}
	text := e.Code().String()
	for _, d := range e.Details() {
		value, err := d.Value()
		if err != nil {
			return err.Error()
		}
		switch detail := value.(type) {
		case *paymentsv1.ErrorDetail:
			text += " " + strings.TrimPrefix(detail.GetCode().String(), "ERROR_CODE_")
			if s := detail.GetState(); s != 0 {
				text += " " + strings.TrimPrefix(s.String(), "PAYOUT_STATE_")
			}
		case *fencelockv1.ErrorDetail:
			text += " " + strings.TrimPrefix(detail.GetCode().String(), "ERROR_CODE_")
			if field := detail.GetDetails()["field"]; field != "" {
				text += " " + field
			}
			if detail.GetSafeToRetry() {
				text += " again"
			}
		}
	}
	return text
}

func expect(t *testing.T, what string, err error, want string) {
	t.Helper()
	if got := said(err); got != want {
		t.Errorf("%s: got %q (%v), want %q", what, got, err, want)
	}
}
