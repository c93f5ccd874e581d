package rail_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"go.uber.org/goleak"

	"github.com/fencelock/fencelock/apps/payments/internal/bank"
	"github.com/fencelock/fencelock/apps/payments/internal/database"
	"github.com/fencelock/fencelock/apps/payments/internal/rail"
	"github.com/fencelock/fencelock/apps/payments/internal/refusal"
	"github.com/fencelock/fencelock/core/lock"
	"github.com/fencelock/fencelock/tools/testenv"
)

// patience is more than a rail on this machine takes for an answer, and eventually far more than anything takes.
const (
	patience   = 60 * time.Second
	eventually = 60 * time.Second
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(testenv.Main(m)) }

// world is a rail, a database, and proxies between them.
type world struct {
	t *testing.T
	// url of the database.
	url  string
	bank *bank.Log
	// address of the rail.
	address string
	handler http.Handler

	mu       sync.Mutex
	requests int
	held     chan struct{}
	events   []rail.Event
	told     chan struct{}
}

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{t: t, url: testenv.Postgres(t).Database(t), told: make(chan struct{}, 1)}
	log, err := bank.OpenLog(filepath.Join(t.TempDir(), "log"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = log.Close() })
	w.bank, w.handler = log, bank.New(t.Context(), log, bank.Faults{}, func(string) {})
	server := httptest.NewServer(http.HandlerFunc(w.serve))
	t.Cleanup(server.Close)
	w.address = server.URL
	return w
}

// serve is the rail's network: it counts orders, and holds them while the test says so.
func (w *world) serve(rw http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	r.Body = io.NopCloser(bytes.NewReader(body))
	w.mu.Lock()
	if r.Method == http.MethodPost {
		w.requests++
		w.wake()
	}
	held, handler := w.held, w.handler
	w.mu.Unlock()
	if held != nil && r.Method == http.MethodPost {
		<-held
	}
	handler.ServeHTTP(rw, r)
}

// wake tells await that something has happened; w.mu is held.
func (w *world) wake() {
	select {
	case w.told <- struct{}{}:
	default:
	}
}

// await waits until a condition over w, under its lock, is true.
func (w *world) await(what string, condition func() bool) {
	w.t.Helper()
	limit := time.NewTimer(eventually)
	defer limit.Stop()
	for {
		w.mu.Lock()
		ok := condition()
		w.mu.Unlock()
		if ok {
			return
		}
		select {
		case <-w.told:
		case <-limit.C:
			w.t.Fatalf("never %s", what)
		}
	}
}

// hold keeps orders on their way until release is called.
func (w *world) hold() (release func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	held := make(chan struct{})
	w.held = held
	release = sync.OnceFunc(func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.held = nil
		close(held)
	})
	w.t.Cleanup(release)
	return release
}

// arrived waits until an order has arrived at the rail.
func (w *world) arrived() {
	w.t.Helper()
	w.await("arrived", func() bool { return w.requests > 0 })
}

// store opens the database as another process would.
func (w *world) store(url string, fencing bool) *rail.Store {
	w.t.Helper()
	db, err := database.Open(w.t.Context(), url, "test")
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(db.Close)
	if err := rail.Migrate(w.t.Context(), db); err != nil {
		w.t.Fatal(err)
	}
	return rail.NewStore(db, fencing)
}

func (w *world) client() *rail.Client {
	w.t.Helper()
	client, err := rail.NewClient(w.address)
	if err != nil {
		w.t.Fatal(err)
	}
	return client
}

// proxy is a proxy of a process of its own.
func (w *world) proxy(fencing bool) *rail.Proxy { return w.proxyAt(w.url, fencing, patience) }

func (w *world) proxyAt(url string, fencing bool, limit time.Duration) *rail.Proxy {
	w.t.Helper()
	p := rail.NewProxy(w.store(url, fencing), w.client(), limit, func(_ context.Context, e rail.Event) {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.events = append(w.events, e)
		w.wake()
	})
	w.t.Cleanup(func() {
		if err := p.Close(context.WithoutCancel(w.t.Context())); err != nil {
			w.t.Error(err)
		}
	})
	return p
}

// order is the payout of that name, of 5 from the account "a".
func order(payout, destination string) rail.Order {
	return rail.Order{Payout: payout, Account: "a", Amount: 5, Destination: destination}
}

func (w *world) submit(p *rail.Proxy, token lock.Token, o rail.Order) rail.Submission {
	w.t.Helper()
	s, err := p.Submit(w.t.Context(), token, o)
	if err != nil {
		w.t.Fatalf("submit %s by %d: %v", o.Payout, token, err)
	}
	return s
}

func (w *world) lookup(p *rail.Proxy, token lock.Token, payout string) (rail.Submission, bool) {
	w.t.Helper()
	s, there, err := p.Lookup(w.t.Context(), token, payout, "a")
	if err != nil {
		w.t.Fatalf("look up %s by %d: %v", payout, token, err)
	}
	return s, there
}

// executed is what the rail has executed.
func (w *world) executed() string {
	var out []string
	for _, t := range w.bank.All() {
		out = append(out, fmt.Sprintf("%s %s", t.Reference, t.Status))
	}
	return strings.Join(out, ", ")
}

// kinds are the kinds of all events so far.
func (w *world) kinds() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	var out []string
	for _, e := range w.events {
		out = append(out, string(e.Kind))
	}
	return strings.Join(out, " ")
}

// sent is how many orders have arrived at the rail.
func (w *world) sent() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.requests
}

func (w *world) connect() *pgx.Conn {
	w.t.Helper()
	conn, err := pgx.Connect(w.t.Context(), w.url)
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { _ = conn.Close(w.t.Context()) })
	return conn
}

// rows are the submissions in the database.
func (w *world) rows(p *rail.Proxy) string {
	w.t.Helper()
	page, next, err := p.List(w.t.Context(), 1000, "")
	if err != nil || next != "" {
		w.t.Fatalf("list: %q, %v", next, err)
	}
	var out []string
	for _, s := range page {
		out = append(out, strings.TrimSpace(fmt.Sprintf("%s %d %s", s.Payout, s.Token, s.Outcome)))
	}
	return strings.Join(out, ", ")
}

func equal(t *testing.T, what, got, want string) {
	t.Helper()
	if got != want {
		t.Errorf("%s: got %q, want %q", what, got, want)
	}
}

func fencedOut(t *testing.T, what string, err error) {
	t.Helper()
	if !errors.Is(err, lock.ErrFencedOut) {
		t.Errorf("%s: got %v, want fenced out", what, err)
	}
}

func refused(t *testing.T, what string, err error, want refusal.Code) {
	t.Helper()
	if refusal.CodeOf(err) != want {
		t.Errorf("%s: got %v, want %s", what, err, want)
	}
}

func invalid(t *testing.T, what string, err error, fields ...string) {
	t.Helper()
	if e, ok := errors.AsType[*lock.Error](err); !ok || e.Code != lock.CodeInvalid || !slices.Contains(fields, e.Field) {
		t.Errorf("%s: got %v, want an invalid %s", what, err, fields)
	}
}
