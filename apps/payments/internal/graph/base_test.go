package graph

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/fencelock/fencelock/apps/program/endpoint"
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

// TestACallerThatLeavesIsNoticed: the limit of the body is not in the way of that.
func TestACallerThatLeavesIsNoticed(t *testing.T) {
	t.Parallel()
	arrived, noticed := make(chan struct{}), make(chan struct{})
	server := httptest.NewServer(impatient(time.Minute, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.ReadAll(r.Body)
		close(arrived)
		<-r.Context().Done()
		close(noticed)
	})))
	defer server.Close()
	ctx, leave := context.WithCancel(t.Context())
	go func() {
		request, _ := http.NewRequestWithContext(ctx, http.MethodPost, server.URL, strings.NewReader("abc"))
		response, err := server.Client().Do(request)
		if err == nil {
			_ = response.Body.Close()
		}
	}()
	<-arrived
	leave()
	<-noticed
}

// TestStoppingDrainsAfterTheDoorIsClosed: what goes on without its caller is waited for when nothing new can come.
func TestStoppingDrainsAfterTheDoorIsClosed(t *testing.T) {
	t.Parallel()
	door := endpoint.New(&http.Server{Handler: http.NotFoundHandler(), ReadHeaderTimeout: time.Minute}, "127.0.0.1:0", func(error) {})
	if err := door.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	var steps []string
	h := newHealth()
	h.begin = func() { steps = append(steps, "begin") }
	late := errors.New("late")
	h.drain = func(ctx context.Context) error {
		if conn, err := new(net.Dialer).DialContext(ctx, "tcp", door.Address()); err == nil {
			_ = conn.Close()
			t.Error("the door is open")
		}
		steps = append(steps, "drain")
		return late
	}
	if err := h.ready(t.Context()); err != nil {
		t.Errorf("before: %v", err)
	}
	if err := h.stop(t.Context(), door); !errors.Is(err, late) {
		t.Errorf("stopped with %v", err)
	}
	if got := strings.Join(steps, " "); got != "begin drain" {
		t.Errorf("steps %s", got)
	}
	if err := h.ready(t.Context()); err == nil {
		t.Error("ready while stopping")
	}
}
