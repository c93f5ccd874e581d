package endpoint_test

import (
	"context"
	"io"
	"net/http"
	"os"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/fencelock/fencelock/apps/program/endpoint"
)

func TestMain(m *testing.M) {
	code := m.Run()
	http.DefaultClient.CloseIdleConnections()
	if err := goleak.Find(); err != nil && code == 0 {
		_, _ = os.Stderr.WriteString("goroutines left: " + err.Error() + "\n")
		code = 1
	}
	os.Exit(code)
}

func start(t *testing.T, addr string, handler http.HandlerFunc) *endpoint.Endpoint {
	t.Helper()
	e := endpoint.New(&http.Server{Handler: handler}, addr, func(err error) { t.Errorf("serving ended: %v", err) })
	if err := e.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	return e
}

func TestAStopWaitsForWhatIsInFlight(t *testing.T) {
	t.Parallel()
	inside, leave := make(chan struct{}), make(chan struct{})
	e := start(t, "localhost:0", func(w http.ResponseWriter, _ *http.Request) {
		close(inside)
		<-leave
		_, _ = io.WriteString(w, "done")
	})
	if address := e.Address(); !strings.HasPrefix(address, "localhost:") || address == "localhost:0" {
		t.Errorf("address %s", address)
	}
	answered := make(chan string, 1)
	go func() {
		response, err := http.Get("http://" + e.Address())
		if err != nil {
			answered <- err.Error()
			return
		}
		defer func() { _ = response.Body.Close() }()
		text, _ := io.ReadAll(response.Body)
		answered <- string(text)
	}()
	<-inside
	stopped := make(chan struct{})
	go func() {
		e.Stop(t.Context())
		close(stopped)
	}()
	select {
	case <-stopped:
		t.Error("it stopped with a request in flight")
	default:
	}
	close(leave)
	<-stopped
	if text := <-answered; text != "done" {
		t.Errorf("the request in flight got %q", text)
	}
}

func TestAStopThatMayNotWaitCuts(t *testing.T) {
	t.Parallel()
	inside := make(chan struct{})
	e := start(t, "127.0.0.1:0", func(_ http.ResponseWriter, r *http.Request) {
		close(inside)
		<-r.Context().Done()
	})
	failed := make(chan error, 1)
	go func() {
		response, err := http.Get("http://" + e.Address())
		if err == nil {
			_ = response.Body.Close()
		}
		failed <- err
	}()
	<-inside
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	e.Stop(ctx)
	if err := <-failed; err == nil {
		t.Error("the request was answered")
	}
}

func TestAnAddressInUseIsAnError(t *testing.T) {
	t.Parallel()
	first := start(t, "127.0.0.1:0", http.NotFound)
	defer first.Stop(t.Context())
	second := endpoint.New(&http.Server{}, first.Address(), nil)
	if err := second.Start(t.Context()); err == nil || !strings.HasPrefix(err.Error(), "listen: ") {
		t.Errorf("error %v", err)
	}
}

func TestAddresses(t *testing.T) {
	t.Parallel()
	for addr, open := range map[string]bool{
		"127.0.0.1:1": false, "[::1]:1": false, "localhost:1": false, "0.0.0.0:1": true, ":1": true, "10.0.0.1:1": true, "example.org:1": true,
	} {
		if err := endpoint.Check("admin.addr", addr); err != nil || endpoint.IsOpen(addr) != open {
			t.Errorf("%s: %v, open %t", addr, err, endpoint.IsOpen(addr))
		}
	}
	for _, addr := range []string{"", "localhost", "::1"} {
		if err := endpoint.Check("admin.addr", addr); err == nil || !strings.HasPrefix(err.Error(), "admin.addr: ") {
			t.Errorf("%s: %v", addr, err)
		}
	}
}
