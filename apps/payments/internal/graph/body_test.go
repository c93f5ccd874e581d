package graph

import (
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
)

// TestABodyThatTricklesIsGivenUp: its sender holds no handler for long.
func TestABodyThatTricklesIsGivenUp(t *testing.T) {
	t.Parallel()
	failed := make(chan error, 1)
	server := httptest.NewServer(impatient(50*time.Millisecond, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		_, err := io.ReadAll(r.Body)
		failed <- err
	})))
	defer server.Close()
	conn, err := new(net.Dialer).DialContext(t.Context(), "tcp", strings.TrimPrefix(server.URL, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := io.WriteString(conn, "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\nabc"); err != nil {
		t.Fatal(err)
	}
	if err := <-failed; err == nil {
		t.Error("the body was read")
	}
}

// TestAnAnswerMayTakeLongerThanTheBody: the limit is the body's alone.
func TestAnAnswerMayTakeLongerThanTheBody(t *testing.T) {
	t.Parallel()
	const limit = 20 * time.Millisecond
	server := httptest.NewServer(impatient(limit, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.ReadAll(r.Body)
		select {
		case <-time.After(10 * limit):
		case <-r.Context().Done():
			w.WriteHeader(http.StatusTeapot)
		}
	})))
	defer server.Close()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, server.URL, strings.NewReader("abc"))
	if err != nil {
		t.Fatal(err)
	}
	response, err := server.Client().Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		t.Errorf("the call was given up: %s", response.Status)
	}
	server.Client().CloseIdleConnections()
}
