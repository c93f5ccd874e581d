package testenv_test

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"
)

// The tests speak etcd's JSON gateway, so that no client of etcd has to be a dependency.

const twoPuts = `{"success":[{"request_put":{"key":"YQ==","value":"YQ=="}},{"request_put":{"key":"Yg==","value":"Yg=="}}]}`

func post(ctx context.Context, url, body string, answer any) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, bytes.NewBufferString(body))
	if err != nil {
		return err
	}
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := client.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		return err
	}
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("%s: %s", resp.Status, text)
	}
	if answer == nil {
		return nil
	}
	return json.Unmarshal(text, answer)
}

func tryPut(ctx context.Context, endpoint, value string) error {
	body := fmt.Sprintf(`{"key":"a2V5","value":%q}`, base64.StdEncoding.EncodeToString([]byte(value)))
	return post(ctx, endpoint+"/v3/kv/put", body, nil)
}

func put(t *testing.T, endpoint, value string) {
	t.Helper()
	if err := tryPut(t.Context(), endpoint, value); err != nil {
		t.Fatal(err)
	}
}

func get(t *testing.T, endpoint string) string {
	t.Helper()
	var answer struct {
		KVs []struct{ Value []byte }
	}
	if err := post(t.Context(), endpoint+"/v3/kv/range", `{"key":"a2V5"}`, &answer); err != nil {
		t.Fatal(err)
	}
	if len(answer.KVs) == 0 {
		return ""
	}
	return string(answer.KVs[0].Value)
}

// refuse fails the test if the server answers a request.
func refuse(t *testing.T, endpoint string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	if err := post(ctx, endpoint+"/v3/kv/range", `{"key":"YQ=="}`, nil); err == nil {
		t.Fatal("a paused server answered")
	}
}

func contains(text, part string) bool { return strings.Contains(text, part) }

// recorder is a T whose failure the test wants to see.
type recorder struct {
	testing.TB

	mu    sync.Mutex
	lines []string
}

func (r *recorder) Helper() {}

func (r *recorder) Fatalf(format string, args ...any) {
	r.mu.Lock()
	r.lines = append(r.lines, fmt.Sprintf(format, args...))
	r.mu.Unlock()
	runtime.Goexit()
}

func (r *recorder) text() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return strings.Join(r.lines, "\n")
}

// run runs f on a goroutine of its own and reports whether it failed.
func (r *recorder) run(f func()) (failed bool) {
	failed = true
	done := make(chan struct{})
	go func() {
		defer close(done)
		f()
		failed = false
	}()
	<-done
	return failed
}
