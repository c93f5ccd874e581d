package main

import (
	"bufio"
	"bytes"
	"errors"

	"io"
	"net/http"
	"os"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/fencelock/fencelock/apps/payout-executor/internal/model"
	"github.com/fencelock/fencelock/apps/payout-executor/internal/payout"
	"github.com/fencelock/fencelock/apps/program"
	"github.com/fencelock/fencelock/contracts/parity/reference"
	"github.com/fencelock/fencelock/core/lock"
	"github.com/fencelock/fencelock/core/port"
)

// lines are a log that is read while it is written.
type lines struct {
	mu  sync.Mutex
	log bytes.Buffer
}

// Write implements io.Writer.
func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.log.Write(p)
}

func (l *lines) text() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.log.String()
}

// running is the program inside the test, with the signals that the test sends.
type running struct {
	lines

	admin   string
	signals chan os.Signal
	// ended has the exit code.
	ended chan int
}

// start runs the program on the stage until it says that it is ready.
func (s *stage) start(t *testing.T, args ...string) *running {
	t.Helper()
	r := &running{signals: make(chan os.Signal), ended: make(chan int, 1)}
	out, in := io.Pipe()
	args = append(s.at(args...), "--payout.admin-addr=127.0.0.1:0", "--payout.poll-interval=20ms", "--payout.owner=executor")
	go func() {
		r.ended <- payoutExecutor().Run(args, nil, in, r, r.signals)
		_ = in.Close()
	}()
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatalf("it ended: %v; %s", err, r.text())
	}
	m := regexp.MustCompile(`^payout-executor ready: admin (http://127\.0\.0\.1:\d+)\n$`).FindStringSubmatch(line)
	if m == nil {
		t.Fatalf("it says %q", line)
	}
	r.admin = m[1]
	return r
}

// exit waits for the end, which must be a good one.
func (r *running) exit(t *testing.T) {
	t.Helper()
	select {
	case code := <-r.ended:
		if code != program.ExitOK {
			t.Errorf("exit code %d: %s", code, r.text())
		}
	case <-time.After(eventually):
		t.Fatalf("it does not end: %s", r.text())
	}
}

// get asks the admin address.
func (r *running) get(t *testing.T, path string) (int, string) {
	t.Helper()
	return get(t, r.admin+path)
}

func get(t *testing.T, url string) (int, string) {
	t.Helper()
	c := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := c.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(body)
}

// sessions are those of an owner.
func sessions(t *testing.T, w *reference.World, owner lock.Owner) int {
	t.Helper()
	all, _, err := w.Client().Sessions(t.Context(), port.Page{Size: 1000})
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for _, s := range all {
		if s.Owner == owner {
			n++
		}
	}
	return n
}

// isLocked reports whether somebody has the account's lock.
func (s *stage) isLocked(t *testing.T) bool {
	t.Helper()
	p := s.ports(t)
	got, err := p.locks.TryAcquire(t.Context(), theAccount)
	if errors.Is(err, lock.ErrHeld) {
		return true
	}
	if err != nil {
		t.Fatal(err)
	}
	if err := got.Release(t.Context()); err != nil {
		t.Fatal(err)
	}
	return false
}

// holdSubmit keeps submissions on the way until let go. held is closed when one is there.
func (s *stage) holdSubmit() (held <-chan struct{}, let func()) {
	there, going := make(chan struct{}), make(chan struct{})
	arrived := sync.OnceFunc(func() { close(there) })
	s.Weather(func(c model.Call) model.Passage {
		if c.Method != "Submit" {
			return model.Passage{}
		}
		return model.Passage{Before: func() {
			arrived()
			<-going
		}}
	})
	return there, sync.OnceFunc(func() { close(going) })
}

func TestItExecutesAndStops(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	r := s.start(t)
	until(t, "it is paid", func() bool { return s.State(thePayout) == wire(payout.StatePosted) })
	s.wantPosted(t)
	if n := sessions(t, s.locks, "executor"); n != 1 {
		t.Errorf("%d sessions", n)
	}
	until(t, "it is ready", func() bool { code, _ := r.get(t, "/readyz"); return code == http.StatusOK })
	r.signals <- syscall.SIGTERM
	r.exit(t)
	if n := sessions(t, s.locks, "executor"); n != 0 {
		t.Errorf("%d sessions are left", n)
	}
}

// TestStoppingEndsTheWorkInHand: the lock is held until the work has ended, nothing new is begun, and the session is closed last.
func TestStoppingEndsTheWorkInHand(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	held, let := s.holdSubmit()
	defer let()
	r := s.start(t, "--payout.concurrency=1")
	<-held
	s.Ask("p2", theAccount, 1, "bob")
	r.signals <- syscall.SIGTERM
	until(t, "it says that it is stopping", func() bool {
		code, text := r.get(t, "/readyz")
		return code == http.StatusServiceUnavailable && strings.Contains(text, "stopping")
	})
	if code, _ := r.get(t, "/healthz"); code != http.StatusOK {
		t.Errorf("/healthz says %d", code)
	}
	if !s.isLocked(t) {
		t.Error("the lock was released while the work went on")
	}
	let()
	r.exit(t)
	s.wantPosted(t)
	if s.State("p2") != wire(payout.StatePending) {
		t.Error("something new was begun")
	}
	if s.isLocked(t) || sessions(t, s.locks, "executor") != 0 {
		t.Error("lock and session were left")
	}
}

// TestReadinessFollowsWhatItNeeds: each of the three goes away and comes back; it is alive all the while.
func TestReadinessFollowsWhatItNeeds(t *testing.T) {
	t.Parallel()
	for _, service := range []model.Service{model.Payments, model.Rail} {
		t.Run(string(service), func(t *testing.T) {
			t.Parallel()
			s := emptyStage(t)
			r := s.start(t)
			ready := func() bool { code, _ := r.get(t, "/readyz"); return code == http.StatusOK }
			until(t, "it is ready", ready)
			s.Down(service, true)
			until(t, "it is not ready", func() bool { return !ready() })
			if code, _ := r.get(t, "/healthz"); code != http.StatusOK {
				t.Errorf("/healthz says %d", code)
			}
			s.Down(service, false)
			until(t, "it is ready again", ready)
			r.signals <- syscall.SIGTERM
			r.exit(t)
			if n := strings.Count(r.text(), `"not_ready"`); n != 1 {
				t.Errorf("not_ready %d times: %s", n, r.text())
			}
		})
	}
}

func TestReadinessFollowsTheLockService(t *testing.T) {
	t.Parallel()
	s := emptyStage(t)
	url, stop, err := serveLocks(t.Context(), s.locks, "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	stop()
	s.lockURL = url
	r := s.start(t, "--payout.session-ttl=2s")
	ready := func() bool { code, _ := r.get(t, "/readyz"); return code == http.StatusOK }
	until(t, "it says what is away", func() bool {
		_, text := r.get(t, "/readyz")
		return text == "not ready: no answer from the lock service\n"
	})
	_, stop, err = serveLocks(t.Context(), s.locks, url[len("http://"):])
	if err != nil {
		t.Fatal(err)
	}
	defer stop()
	until(t, "it is ready", ready)
	stop()
	until(t, "it is not ready", func() bool { return !ready() })
	r.signals <- syscall.SIGTERM
	r.exit(t)
}

// TestNothingSecretIsLogged: events name ids and tokens, never the session.
func TestNothingSecretIsLogged(t *testing.T) {
	t.Parallel()
	s := emptyStage(t)
	s.crowd(3, 3)
	r := s.start(t, "--log.level=debug")
	until(t, "the backlog is empty", func() bool { return s.Backlog() == 0 })
	all, _, err := s.locks.Client().Sessions(t.Context(), port.Page{Size: 1000})
	if err != nil {
		t.Fatal(err)
	}
	r.signals <- syscall.SIGTERM
	r.exit(t)
	for _, session := range all {
		if strings.Contains(r.text(), session.ID.Reveal()) {
			t.Errorf("the log shows a session: %s", r.text())
		}
	}
	if n := strings.Count(r.text(), `"msg":"payout_posted"`); n != 9 {
		t.Errorf("%d payouts were posted: %s", n, r.text())
	}
}

func TestWhatCannotBeIsRefusedInOneLine(t *testing.T) {
	t.Parallel()
	for says, args := range map[string][]string{
		"payout.lock-servers":  {"--payout.lock-servers="},
		"payout.payment":       {"--payout.payment=nowhere"},
		"payout.rail":          {"--payout.rail=ftp://x"},
		"payout.rail-log":      {"--payout.rail-log=x"},
		"payout.admin-addr":    {"--payout.admin-addr=x"},
		"payout.session-ttl":   {"--payout.session-ttl=1s"},
		"payout.concurrency":   {"--payout.concurrency=257"},
		"payout.poll-interval": {"--payout.poll-interval=1ms"},
		"payout.owner":         {"--payout.owner=" + strings.Repeat("x", 65)},
		"payout.stop-timeout":  {"--payout.stop-timeout=0s"},
		"log.level":            {"--log.level=loud"},
		"lock.session.ttl":     {"--lock.session.ttl=3s"},
		"reconcile":            {"recon"},
	} {
		code, out, errs := run(args...)
		if code != program.ExitConfig || out != "" || !strings.Contains(errs, says) || strings.Count(errs, "\n") != 1 {
			t.Errorf("%v: code %d, it says %q and %q", args, code, out, errs)
		}
	}
	// An address in use is found when it starts.
	s := emptyStage(t)
	code, _, errs := run(append(s.at(), "--payout.admin-addr="+strings.TrimPrefix(s.services, "http://"))...)
	if code != program.ExitFailed || strings.Count(errs, "\n") == 0 {
		t.Errorf("code %d: %s", code, errs)
	}
}

func TestConfigIsPrintedWithoutPasswords(t *testing.T) {
	t.Parallel()
	code, out, _ := run("config", "--payout.payment=http://me:hunter2@pay:1", "--payout.lock-servers=http://me:hunter2@a:1,b:2")
	if code != program.ExitOK || strings.Contains(out, "hunter2") ||
		!strings.Contains(out, `payout.payment: "http://me:xxxxx@pay:1"`) || !strings.Contains(out, `payout.concurrency: 8`) {
		t.Errorf("code %d: %s", code, out)
	}
}
