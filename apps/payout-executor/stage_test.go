package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"connectrpc.com/connect"
	"go.uber.org/goleak"

	"github.com/fencelock/fencelock/adapters/client"
	"github.com/fencelock/fencelock/adapters/rpc"
	"github.com/fencelock/fencelock/apps/payout-executor/internal/locks"
	"github.com/fencelock/fencelock/apps/payout-executor/internal/model"
	"github.com/fencelock/fencelock/apps/payout-executor/internal/payout"
	"github.com/fencelock/fencelock/apps/payout-executor/internal/remote"
	paymentsv1 "github.com/fencelock/fencelock/contracts/api/fencelock/payments/v1"
	v1 "github.com/fencelock/fencelock/contracts/api/fencelock/v1"
	"github.com/fencelock/fencelock/contracts/parity/reference"
	"github.com/fencelock/fencelock/core/clock"
	"github.com/fencelock/fencelock/core/lock"
	"github.com/fencelock/fencelock/core/port"
	"github.com/fencelock/fencelock/core/service"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m, goleak.Cleanup(func(code int) {
		built.remove()
		os.Exit(code)
	}))
}

// eventually bounds what must happen some time, however busy the machine is.
const eventually = 60 * time.Second

// The account and the payout of tests that need one of each.
const (
	theAccount = "alice"
	thePayout  = "p1"
	theAmount  = 30
	theBalance = 100
)

// stage is everything around executors: a lock server over a store in memory, and the model of the services.
type stage struct {
	*model.World

	locks    *reference.World
	lockURL  string
	services string
	// admin is nobody's executor.
	admin *client.Client
}

type silent struct{}

func (silent) Observe(context.Context, port.Event) {}

// newStage has the one account and the one payout.
func newStage(t *testing.T) *stage {
	t.Helper()
	s := emptyStage(t)
	s.Open(theAccount, theBalance)
	s.Ask(thePayout, theAccount, theAmount, "bob")
	return s
}

func emptyStage(t *testing.T) *stage {
	t.Helper()
	s := &stage{World: model.New(), locks: reference.New()}
	t.Cleanup(s.locks.Close)
	services := httptest.NewServer(s.Handler())
	t.Cleanup(services.Close)
	s.services = services.URL
	url, stop, err := serveLocks(t.Context(), s.locks, "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(stop)
	s.lockURL = url
	s.admin = s.client(t)
	s.useTokens(t)
	return s
}

// useTokens lets tests start with payouts of earlier holders: the tokens up to 10 are given.
func (s *stage) useTokens(t *testing.T) {
	t.Helper()
	session, err := s.admin.OpenSession(t.Context(), "earlier")
	if err != nil {
		t.Fatal(err)
	}
	for range 10 {
		l, err := session.Acquire(t.Context(), "used")
		if err != nil {
			t.Fatal(err)
		}
		if _, err := l.Release(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
}

// serveLocks is a lock server as it is, over a store in memory.
func serveLocks(ctx context.Context, world *reference.World, addr string) (url string, stop func(), err error) {
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", addr)
	if err != nil {
		return "", nil, err
	}
	svc := service.New(world.Client().Backend(), service.Config{}, clock.Boot{}, silent{})
	svc.Start()
	server := rpc.NewServer(rpc.New(rpc.Config{
		Service: svc, Clock: clock.Boot{}, Ready: svc.Ping,
		Info: rpc.Info{Version: "test", SessionTTL: lock.DefaultTTL, SafetyMargin: client.DefaultSafetyMargin},
	}), slog.New(slog.DiscardHandler))
	served := make(chan struct{})
	go func() {
		defer close(served)
		_ = server.Serve(listener)
	}()
	return "http://" + listener.Addr().String(), sync.OnceFunc(func() {
		_ = server.Close()
		<-served
		svc.Close()
	}), nil
}

func (s *stage) client(t *testing.T, opts ...client.Option) *client.Client {
	t.Helper()
	c, err := client.New([]string{s.lockURL}, opts...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// revoke ends whatever grant of the account there is, as an operator or the death of a session would.
func (s *stage) revoke(t *testing.T, account string) {
	t.Helper()
	_, err := s.admin.Admin().Revoke(t.Context(), connect.NewRequest(&v1.RevokeRequest{
		Key: locks.Key(account), Operator: "test", Reason: "it is a test",
	}))
	if err := client.Translate(err); err != nil && !errors.Is(err, lock.ErrLost) {
		t.Error(err)
	}
}

// killSessions ends all sessions of executors, as if their time had run out.
func (s *stage) killSessions(t *testing.T) (killed int) {
	t.Helper()
	sessions, _, err := s.locks.Client().Sessions(t.Context(), port.Page{Size: 1000})
	if err != nil {
		t.Fatal(err)
	}
	for _, session := range sessions {
		if session.Owner == "test" && s.locks.KillSession(session.ID) {
			killed++
		}
	}
	return killed
}

// ports are what an executor works with.
type ports struct {
	locks    payout.Locks
	payments payout.Payments
	rail     payout.Rail
}

// ports returns those of one process.
func (s *stage) ports(t *testing.T) ports {
	t.Helper()
	return s.portsFor(t, time.Minute)
}

// portsFor is ports with another time to live of the session.
func (s *stage) portsFor(t *testing.T, ttl time.Duration, opts ...client.Option) ports {
	t.Helper()
	c := remote.NewHTTPClient(4)
	t.Cleanup(c.CloseIdleConnections)
	held := locks.New(s.client(t, opts...), "test", ttl)
	t.Cleanup(func() { _ = held.Close(context.WithoutCancel(t.Context())) })
	return ports{locks: held, payments: remote.NewPayments(c, s.services), rail: remote.NewRail(c, s.services)}
}

// hasty are limits for tests in which calls fail for good.
func hasty() payout.Limits {
	return payout.Limits{PauseBase: time.Millisecond, PauseMost: 5 * time.Millisecond}
}

// executor returns one over the ports, with what it tells.
func (p ports) executor() (*payout.Executor, *recorder) {
	r := &recorder{}
	return payout.New(p.locks, p.payments, p.rail, r, hasty()), r
}

// recorder keeps what executions tell.
type recorder struct {
	mu     sync.Mutex
	events []payout.Event
}

// Observe implements payout.Observer.
func (r *recorder) Observe(_ context.Context, e payout.Event) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.events = append(r.events, e)
}

// kinds are what was told, in order.
func (r *recorder) kinds() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	var kinds []string
	for _, e := range r.events {
		kinds = append(kinds, string(e.Kind))
	}
	return strings.Join(kinds, " ")
}

// last is what was told last.
func (r *recorder) last() payout.Event {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.events[len(r.events)-1]
}

// the is the payout as a listing shows it before anything has happened.
func the() payout.Payout {
	return payout.Payout{
		Ref: payout.Ref{ID: thePayout, Account: theAccount}, Amount: theAmount, Destination: "bob", State: payout.StatePending,
	}
}

// recover lets a fresh executor at the payout until it is over, or was looked at again where it is ambiguous.
func (s *stage) recover(t *testing.T) {
	t.Helper()
	e, _ := s.ports(t).executor()
	for range 3 {
		result := e.Execute(t.Context(), the())
		if result.Outcome != payout.Left && result.Outcome != payout.Ambiguous {
			return
		}
	}
}

// wantState compares the payout's state, and what the world says about itself.
func (s *stage) wantState(t *testing.T, want payout.State) {
	t.Helper()
	if got := strings.TrimPrefix(s.State(thePayout).String(), "PAYOUT_STATE_"); got != string(want) {
		t.Errorf("the payout is %s, want %s", got, want)
	}
	for _, fault := range s.faults() {
		t.Error(fault)
	}
}

// faults are what is wrong with the books, and with the calls that led to them.
func (s *stage) faults() []string {
	found := s.Faults()
	fenced, submits := map[int64]bool{}, map[int64]int{}
	for _, c := range s.Calls() {
		if fenced[c.Token] {
			found = append(found, fmt.Sprintf("%s under the token %d, which was fenced out", c.Method, c.Token))
		}
		fenced[c.Token] = fenced[c.Token] || c.Refused
		if c.Method == "Submit" {
			submits[c.Token]++
		}
		if submits[c.Token] > 1 {
			found = append(found, fmt.Sprintf("a second submit under the token %d", c.Token))
		}
	}
	return found
}

// wantPosted is wantState for a payout that was paid once.
func (s *stage) wantPosted(t *testing.T) {
	t.Helper()
	s.wantState(t, payout.StatePosted)
	if n := len(s.Transfers()); n != 1 {
		t.Errorf("%d transfers", n)
	}
	if b := s.Balance(theAccount); b != theBalance-theAmount {
		t.Errorf("the balance is %d", b)
	}
}

// methods are the calls with a token so far.
func (s *stage) methods() string {
	var found []string
	for _, c := range s.Calls() {
		found = append(found, c.Method)
	}
	return strings.Join(found, ", ")
}

// wire is a state as the services name it.
func wire(s payout.State) paymentsv1.PayoutState {
	return paymentsv1.PayoutState(paymentsv1.PayoutState_value["PAYOUT_STATE_"+string(s)])
}

func until(t *testing.T, what string, ok func() bool) {
	t.Helper()
	ticker := time.NewTicker(5 * time.Millisecond)
	defer ticker.Stop()
	limit := time.After(eventually)
	for !ok() {
		select {
		case <-ticker.C:
		case <-limit:
			t.Fatal("it never happened: " + what)
		}
	}
}

// stepper numbers the boundaries of an execution: each call has one before it is sent, and one when its answer, carried out by
// the service, is about to arrive.
type stepper struct {
	mu    sync.Mutex
	names []string
	held  payout.Lock
	// on is told of each boundary; what it returns becomes the call's error.
	on func(n int, name string) error
}

func (s *stepper) pass(name string) error {
	s.mu.Lock()
	n := len(s.names)
	s.names = append(s.names, name)
	s.mu.Unlock()
	return s.on(n, name)
}

func (s *stepper) name(n int) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if n >= len(s.names) {
		return fmt.Sprint("boundary ", n)
	}
	return s.names[n]
}

func around[A any](s *stepper, name string, call func() (A, error)) (A, error) {
	var none A
	if err := s.pass("before " + name); err != nil {
		return none, err
	}
	answer, err := call()
	if err := s.pass("after " + name); err != nil {
		return none, err
	}
	return answer, err
}

// stepped puts the boundaries around all calls.
func (p ports) stepped(s *stepper) ports {
	return ports{
		locks:    steppedLocks{p.locks, s},
		payments: steppedPayments{p.payments, s},
		rail:     steppedRail{p.rail, s},
	}
}

type steppedLocks struct {
	payout.Locks
	s *stepper
}

// lose ends the lock, and the holder knows it at once.
func (s *stepper) lose(t *testing.T) {
	t.Helper()
	s.mu.Lock()
	held := s.held
	s.mu.Unlock()
	if held == nil {
		return
	}
	if err := held.Release(t.Context()); err != nil {
		t.Error(err)
	}
	if err := held.CheckStillHeld(); !errors.Is(err, lock.ErrLost) {
		t.Errorf("the lock is not lost: %v", err)
	}
}

func (l steppedLocks) TryAcquire(ctx context.Context, account string) (payout.Lock, error) {
	got, err := around(l.s, "acquire", func() (payout.Lock, error) {
		got, err := l.Locks.TryAcquire(ctx, account)
		if err == nil {
			l.s.mu.Lock()
			l.s.held = got
			l.s.mu.Unlock()
		}
		return got, err
	})
	if err != nil {
		return nil, err
	}
	return steppedLock{got, l.s}, nil
}

type steppedLock struct {
	payout.Lock
	s *stepper
}

func (l steppedLock) Release(ctx context.Context) error {
	_, err := around(l.s, "release", func() (struct{}, error) { return struct{}{}, l.Lock.Release(ctx) })
	return err
}

type steppedPayments struct {
	payout.Payments
	s *stepper
}

func (p steppedPayments) Get(ctx context.Context, id string) (payout.Picture, error) {
	return around(p.s, "get", func() (payout.Picture, error) { return p.Payments.Get(ctx, id) })
}

func (p steppedPayments) Claim(ctx context.Context, token payout.Token, ref payout.Ref) (payout.Picture, error) {
	return around(p.s, "claim", func() (payout.Picture, error) { return p.Payments.Claim(ctx, token, ref) })
}

func (p steppedPayments) Advance(ctx context.Context, token payout.Token, step payout.Step) (payout.Payout, error) {
	return around(p.s, "advance "+string(step.To), func() (payout.Payout, error) { return p.Payments.Advance(ctx, token, step) })
}

func (p steppedPayments) Post(ctx context.Context, token payout.Token, ref payout.Ref, after int64) (payout.Picture, error) {
	return around(p.s, "post", func() (payout.Picture, error) { return p.Payments.Post(ctx, token, ref, after) })
}

type steppedRail struct {
	payout.Rail
	s *stepper
}

func (r steppedRail) Submit(ctx context.Context, token payout.Token, p payout.Payout) (payout.Submission, error) {
	return around(r.s, "submit", func() (payout.Submission, error) { return r.Rail.Submit(ctx, token, p) })
}

type found struct {
	sent  payout.Submission
	there bool
}

func (r steppedRail) Lookup(ctx context.Context, token payout.Token, ref payout.Ref) (payout.Submission, bool, error) {
	f, err := around(r.s, "lookup", func() (f found, err error) {
		f.sent, f.there, err = r.Rail.Lookup(ctx, token, ref)
		return f, err
	})
	return f.sent, f.there, err
}

// beginnings are the calls that begin something, of those.
func beginnings(calls []model.Call) []model.Call {
	return slices.DeleteFunc(slices.Clone(calls), func(c model.Call) bool {
		return !slices.Contains([]string{"Claim", "Advance RAIL_SUBMITTED", "Submit"}, c.Method)
	})
}
