package drills_test

import (
	"bytes"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync"
	"testing"

	"github.com/fencelock/fencelock/adapters/client"
)

// delayer is a network that keeps the first acquire back, and counts heartbeats once it was let go.
type delayer struct {
	forward http.Handler
	held    chan *http.Request // the acquire that is kept back
	seen    func() bool        // whether the key is held, asked at the server itself

	mu       sync.Mutex
	first    bool
	counting bool
	beats    int
	overdue  chan bool // whether the key was held when the third heartbeat arrived
}

// ServeHTTP implements http.Handler.
func (d *delayer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	switch {
	case strings.HasSuffix(r.URL.Path, "/Acquire") && d.isFirst():
		body, _ := io.ReadAll(r.Body)
		late := r.Clone(r.Context())
		late.Body = io.NopCloser(bytes.NewReader(body))
		d.held <- late
		<-r.Context().Done() // the caller gives up on it
		return
	case strings.HasSuffix(r.URL.Path, "/Heartbeat"):
		if d.count() == 3 {
			d.overdue <- d.seen()
		}
	}
	d.forward.ServeHTTP(w, r)
}

func (d *delayer) isFirst() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	first := !d.first
	d.first = true
	return first
}

func (d *delayer) count() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.counting {
		d.beats++
	}
	return d.beats
}

func TestLateAcquireLeavesNothingBeyondTwoHeartbeats(t *testing.T) {
	t.Parallel()
	for _, k := range each() {
		t.Run(k.name, func(t *testing.T) {
			t.Parallel()
			store := k.open(t)
			s := startServer(t, store)
			target, err := url.Parse(s.URL())
			if err != nil {
				t.Fatal(err)
			}
			network := &delayer{
				forward: httputil.NewSingleHostReverseProxy(target),
				held:    make(chan *http.Request, 1),
				seen:    func() bool { return post(t, s, "LockService/Inspect", `{"key":"late"}`)["held"] == true },
				overdue: make(chan bool, 1),
			}
			front := httptest.NewServer(network)
			t.Cleanup(front.Close)
			sdk, err := client.New([]string{front.URL}, client.WithUnaryOnly(), client.WithCallTimeout(mortal/5))
			if err != nil {
				t.Fatalf("new client: %v", err)
			}
			t.Cleanup(func() { _ = sdk.Close() })
			session := openSession(t, sdk, "unlucky", mortal)
			held, err := session.TryAcquire(t.Context(), "late")
			if err != nil {
				t.Fatalf("the retry of the delayed acquire: %v", err)
			}
			if _, err := held.Release(t.Context()); err != nil {
				t.Fatalf("release: %v", err)
			}
			late := within(t, "the first acquire was kept back", network.held)
			answer := httptest.NewRecorder()
			network.forward.ServeHTTP(answer, late.WithContext(t.Context()))
			if !network.seen() {
				t.Fatalf("the delayed acquire left no grant (%d %q): nothing was tested", answer.Code, answer.Body)
			}
			network.mu.Lock()
			network.counting = true
			network.mu.Unlock()
			if within(t, "three heartbeats", network.overdue) {
				t.Error("a grant that nobody knows outlived two heartbeats")
			}
			if session.Err() != nil {
				t.Errorf("the session did not survive: %v", session.Err())
			}
		})
	}
}
