package bank_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/fencelock/fencelock/apps/payments/internal/bank"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// running is a rail that serves.
type running struct {
	t      *testing.T
	url    string
	file   string
	log    *bank.Log
	client *http.Client

	mu   sync.Mutex
	told []string
}

func start(t *testing.T, faults bank.Faults) *running {
	t.Helper()
	r := &running{t: t, file: filepath.Join(t.TempDir(), "transfers.log"), client: &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}}
	r.log = reopen(t, r.file)
	server := httptest.NewServer(bank.New(t.Context(), r.log, faults, func(outcome string) {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.told = append(r.told, outcome)
	}))
	t.Cleanup(server.Close)
	r.url = server.URL
	return r
}

// outcomes are what the handler has told, each before its caller has an answer.
func (r *running) outcomes() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.told)
}

func reopen(t *testing.T, file string) *bank.Log {
	t.Helper()
	log, err := bank.OpenLog(file)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = log.Close() })
	return log
}

// send sends a body and returns status and answer; no answer is status 0.
func (r *running) send(method, path, body string) (int, string) {
	r.t.Helper()
	request, err := http.NewRequestWithContext(r.t.Context(), method, r.url+path, strings.NewReader(body))
	if err != nil {
		r.t.Fatal(err)
	}
	response, err := r.client.Do(request)
	if err != nil {
		return 0, ""
	}
	defer response.Body.Close()
	answer, err := io.ReadAll(response.Body)
	if err != nil {
		r.t.Fatal(err)
	}
	return response.StatusCode, strings.TrimSpace(string(answer))
}

func (r *running) transfer(reference, to string) (int, bank.Transfer) {
	r.t.Helper()
	status, body := r.send("POST", "/transfers", fmt.Sprintf(`{"reference":%q,"amount":5,"destination":%q}`, reference, to))
	var transfer bank.Transfer
	if status != 0 {
		if err := json.Unmarshal([]byte(body), &transfer); err != nil {
			r.t.Fatalf("%s: %v", body, err)
		}
	}
	return status, transfer
}

// list is what the rail says that it has received.
func (r *running) list(query string) string {
	r.t.Helper()
	status, body := r.send("GET", "/transfers"+query, "")
	var all bank.Listing
	if err := json.Unmarshal([]byte(body), &all); err != nil || status != 200 || all.Transfers == nil {
		r.t.Fatalf("list: %d %s: %v", status, body, err)
	}
	return lines(all.Transfers)
}

func lines(all []bank.Transfer) string {
	var out []string
	for _, t := range all {
		out = append(out, fmt.Sprintf("%s %s %d %s %s", t.ID, t.Reference, t.Amount, t.Destination, t.Status))
	}
	return strings.Join(out, ", ")
}

// TestEveryCallIsExecuted is the point of it: the rail cannot tell a repeated transfer from a new one.
func TestEveryCallIsExecuted(t *testing.T) {
	t.Parallel()
	r := start(t, bank.Faults{})
	if got := r.list(""); got != "" {
		t.Errorf("at first: %s", got)
	}
	for i := range 2 {
		status, transfer := r.transfer("p1", "d")
		if status != 201 || transfer.ID != fmt.Sprintf("t-%d", i+1) || transfer.Status != bank.Executed || transfer.At.IsZero() {
			t.Errorf("%d %+v", status, transfer)
		}
	}
	r.transfer("p2", "d")
	const both = "t-1 p1 5 d executed, t-2 p1 5 d executed"
	if got := r.list("?reference=p1"); got != both {
		t.Errorf("of p1: %s", got)
	}
	if got := r.list(""); got != both+", t-3 p2 5 d executed" {
		t.Errorf("all: %s", got)
	}
	for _, query := range []string{"?reference=p3", "?reference="} {
		if got := r.list(query); got != "" {
			t.Errorf("%s: %s", query, got)
		}
	}
}

func TestDestinationsWithAMeaning(t *testing.T) {
	t.Parallel()
	r := start(t, bank.Faults{})
	if status, transfer := r.transfer("p1", bank.ToDecline); status != 422 || transfer.Status != bank.Declined || transfer.Reference != "p1" {
		t.Errorf("decline: %d %+v", status, transfer)
	}
	if status, _ := r.transfer("p2", bank.ToLoseReply); status != 0 {
		t.Errorf("lost reply: %d", status)
	}
	if status, _ := r.transfer("p3", bank.ToLoseRequest); status != 0 {
		t.Errorf("lost request: %d", status)
	}
	if got := r.list(""); got != "t-1 p1 5 decline declined, t-2 p2 5 lost-reply executed" {
		t.Errorf("all: %s", got)
	}
	if want := []string{bank.OutcomeDeclined, bank.OutcomeReplyLost, bank.OutcomeRequestLost}; !slices.Equal(r.outcomes(), want) {
		t.Errorf("told %q", r.outcomes())
	}
}

func TestFaultsAreSetWhileItRuns(t *testing.T) {
	t.Parallel()
	r := start(t, bank.Faults{LoseReply: 1})
	if status, _ := r.transfer("p1", "d"); status != 0 {
		t.Errorf("lost reply: %d", status)
	}
	// What is not named stays.
	if status, body := r.send("POST", "/faults", `{"decline":1,"latency":"1ms"}`); status != 200 || body != `{"latency":"1ms","decline":1,"lose_reply":1}` {
		t.Errorf("set: %d %s", status, body)
	}
	if status, transfer := r.transfer("p2", "d"); status != 422 || transfer.Status != bank.Declined {
		t.Errorf("declined: %d %+v", status, transfer)
	}
	before, _ := r.send("GET", "/faults", "")
	for _, body := range []string{
		"", "{", "[]", `{"decline":2}`, `{"decline":-0.1}`, `{"lose_reply":1.5}`, `{"latency":"-1s"}`, `{"latency":"11m"}`, `{"latency":"soon"}`,
		`{"latency":5}`, `{"nothing":1}`, `{"decline":"NaN"}`, `{"decline":0,"lose_reply":9}`,
	} {
		if status, answer := r.send("POST", "/faults", body); status != 400 || !strings.Contains(answer, `"error":"`) {
			t.Errorf("%s: %d %s", body, status, answer)
		}
	}
	if status, body := r.send("GET", "/faults", ""); status != before || body != `{"latency":"1ms","decline":1,"lose_reply":1}` {
		t.Errorf("after what was refused: %s", body)
	}
	r.send("POST", "/faults", `{"decline":0,"lose_reply":0,"latency":"0s"}`)
	if status, _ := r.transfer("p3", "d"); status != 201 {
		t.Errorf("healed: %d", status)
	}
}

func TestWhatIsNotUnderstoodIsNotExecuted(t *testing.T) {
	t.Parallel()
	r := start(t, bank.Faults{})
	good := `"reference":"p","amount":5,"destination":"d"`
	for _, body := range []string{
		"", "{", "null", "[]", `{}`, `{"reference":"p","amount":5}`, `{"amount":5,"destination":"d"}`, `{"reference":"p","destination":"d"}`,
		`{"reference":"p","amount":0,"destination":"d"}`, `{"reference":"p","amount":-5,"destination":"d"}`, `{"reference":"p","amount":1.5,"destination":"d"}`,
		`{"reference":"p","amount":9223372036854775808,"destination":"d"}`, `{"reference":"p p","amount":5,"destination":"d"}`,
		`{` + good + `,"more":1}`, `{` + good + `}{` + good + `}`, `{"reference":"p","amount":5,"destination":"` + strings.Repeat("x", 65) + `"}`,
		`{` + good + strings.Repeat(" ", 1<<17) + `}`,
	} {
		if status, answer := r.send("POST", "/transfers", body); status != 400 || !strings.Contains(answer, `"error":"`) {
			t.Errorf("%.99s: %d %s", body, status, answer)
		}
	}
	for _, method := range []string{"PUT", "DELETE", "PATCH"} {
		if status, _ := r.send(method, "/transfers", "{"+good+"}"); status != 405 {
			t.Errorf("%s: %d", method, status)
		}
	}
	if got := r.list(""); got != "" {
		t.Errorf("executed: %s", got)
	}
}

func TestATransferIsOnDiskBeforeItsAnswerAndReadBack(t *testing.T) {
	t.Parallel()
	r := start(t, bank.Faults{})
	for i := range 3 {
		_, transfer := r.transfer("p", "d")
		data, err := os.ReadFile(r.file)
		if err != nil || bytes.Count(data, []byte("\n")) != i+1 || !strings.Contains(string(data), `"`+transfer.ID+`"`) {
			t.Errorf("after %d: %s, %v", i+1, data, err)
		}
	}
	if _, err := bank.OpenLog(r.file); err == nil {
		t.Error("two writers have the log")
	}
	// A writer that died in the middle of a line, which nobody was told of.
	file, err := os.OpenFile(r.file, os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	_, err = file.WriteString(`{"id":"t-4","reference":"p"`)
	if err := errors.Join(err, file.Close(), r.log.Close()); err != nil {
		t.Fatal(err)
	}
	log := reopen(t, r.file)
	if got := lines(log.All()); got != "t-1 p 5 d executed, t-2 p 5 d executed, t-3 p 5 d executed" {
		t.Errorf("read back: %s", got)
	}
	if added, err := log.Append(bank.Transfer{Reference: "q", Amount: 1, Destination: "d", Status: bank.Executed}); err != nil || added.ID != "t-4" {
		t.Errorf("append: %+v, %v", added, err)
	}
	_ = log.Close()
	again := reopen(t, r.file)
	if got := lines(again.Of("q")); got != "t-4 q 1 d executed" || len(again.All()) != 4 {
		t.Errorf("read back again: %s of %d", got, len(again.All()))
	}
}

func TestALogThatCannotBeReadIsAnError(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "log")
	if err := os.WriteFile(file, []byte("{\"id\":\"t-1\"}\nnonsense\n{\"id\":\"t-3\"}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := bank.OpenLog(file); err == nil || !strings.Contains(err.Error(), "line 2") {
		t.Errorf("read: %v", err)
	}
	if _, err := bank.OpenLog(filepath.Join(file, "log")); err == nil {
		t.Error("opened in what is no folder")
	}
	_ = reopen(t, filepath.Join(t.TempDir(), "new", "folder", "log"))
}

func TestAfterALogThatCannotBeWrittenNothingIsExecuted(t *testing.T) {
	t.Parallel()
	log, err := bank.OpenLog(filepath.Join(t.TempDir(), "log"))
	if err != nil {
		t.Fatal(err)
	}
	if err := log.Close(); err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(bank.New(t.Context(), log, bank.Faults{}, func(string) {}))
	defer server.Close()
	r := &running{t: t, url: server.URL, client: server.Client()}
	for range 2 {
		if status, body := r.send("POST", "/transfers", `{"reference":"p","amount":5,"destination":"d"}`); status != 500 {
			t.Errorf("%d %s", status, body)
		}
	}
	if got := r.list(""); got != "" {
		t.Errorf("executed: %s", got)
	}
}

// TestALateTransferIsExecutedWithoutItsCaller: what has arrived is executed, though its caller has left.
func TestALateTransferIsExecutedWithoutItsCaller(t *testing.T) {
	t.Parallel()
	log, err := bank.OpenLog(filepath.Join(t.TempDir(), "log"))
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	stopping, stop := context.WithCancel(t.Context())
	arrived := make(chan struct{})
	handler := bank.New(stopping, log, bank.Faults{Latency: time.Minute * 5}, func(string) {})
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		r.Body = io.NopCloser(bytes.NewReader(body))
		close(arrived)
		handler.ServeHTTP(w, r)
	}))
	ctx, leave := context.WithCancel(t.Context())
	left := make(chan error, 1)
	go func() {
		request, _ := http.NewRequestWithContext(ctx, http.MethodPost, server.URL+"/transfers", strings.NewReader(`{"reference":"p","amount":5,"destination":"d"}`))
		response, err := server.Client().Do(request)
		if err == nil {
			_ = response.Body.Close()
		}
		left <- err
	}()
	<-arrived
	leave()
	if err := <-left; err == nil {
		t.Error("there was an answer")
	}
	stop() // ends the latency
	server.Close()
	if got := lines(log.All()); got != "t-1 p 5 d executed" {
		t.Errorf("executed: %s", got)
	}
}

// TestManyAtOnce: no line is torn, no name comes twice.
func TestManyAtOnce(t *testing.T) {
	t.Parallel()
	r := start(t, bank.Faults{})
	const callers, each = 8, 10
	var wg sync.WaitGroup
	for range callers {
		wg.Go(func() {
			for range each {
				r.transfer("p", "d")
			}
		})
	}
	wg.Wait()
	_ = r.log.Close()
	log := reopen(t, r.file)
	ids := map[string]bool{}
	for _, transfer := range log.All() {
		ids[transfer.ID] = true
	}
	if len(ids) != callers*each || len(log.All()) != callers*each {
		t.Errorf("%d names of %d transfers", len(ids), len(log.All()))
	}
}
