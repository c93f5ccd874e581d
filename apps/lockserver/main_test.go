package main

import (
	"bufio"
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/types/known/durationpb"

	fencelockv1 "github.com/fencelock/fencelock/contracts/api/fencelock/v1"
	"github.com/fencelock/fencelock/contracts/api/fencelock/v1/fencelockv1connect"
	"github.com/fencelock/fencelock/tools/testenv"
)

// childMark makes the test binary run as the server itself, so that tests have a real process to kill.
const childMark = "LOCKSERVER_TEST_CHILD"

// eventually is the generous limit of everything that must happen some time.
const eventually = 60 * time.Second

func TestMain(m *testing.M) {
	if os.Getenv(childMark) != "" {
		signals := make(chan os.Signal, 2)
		signal.Notify(signals, syscall.SIGTERM, os.Interrupt)
		os.Exit(run(os.Args[1:], os.Environ(), os.Stdout, os.Stderr, signals))
	}
	os.Exit(testenv.Main(m).Run())
}

// process is a running server.
type process struct {
	cmd        *exec.Cmd
	rpc, admin string
	ready      string
	errors     *buffer
	exited     chan struct{}
}

// buffer collects output while it is being read.
type buffer struct {
	mu   sync.Mutex
	data bytes.Buffer
}

func (b *buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.data.Write(p)
}

func (b *buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.data.String()
}

var readyLine = regexp.MustCompile(`^lockserver ready: rpc (http://[^,]+), admin (http://[^,]+), (.*)\n$`)

// launch starts a server on free ports and waits until it says that it is ready.
func launch(t *testing.T, args ...string) *process {
	t.Helper()
	p := begin(t, args...)
	if p.ready == "" {
		t.Fatalf("the server is not ready: %s", p.errors)
	}
	match := readyLine.FindStringSubmatch(p.ready)
	if match == nil {
		t.Fatalf("ready line %q", p.ready)
	}
	p.rpc, p.admin = match[1], match[2]
	return p
}

// begin starts a server and waits for its first line of output, if there is one.
func begin(t *testing.T, args ...string) *process {
	t.Helper()
	args = append([]string{"--server.addr=127.0.0.1:0", "--admin.addr=127.0.0.1:0"}, args...)
	p := &process{cmd: exec.Command(os.Args[0], args...), errors: &buffer{}, exited: make(chan struct{})}
	p.cmd.Env = append(os.Environ(), childMark+"=1")
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	p.cmd.Stderr = p.errors
	output, err := p.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.kill)
	p.ready, _ = bufio.NewReader(output).ReadString('\n')
	go func() {
		defer close(p.exited)
		_, _ = io.Copy(io.Discard, output)
		_ = p.cmd.Wait()
	}()
	return p
}

// kill ends the process as abruptly as can be.
func (p *process) kill() {
	_ = p.cmd.Process.Kill()
	<-p.exited
}

func (p *process) signal(t *testing.T, s os.Signal) {
	t.Helper()
	if err := p.cmd.Process.Signal(s); err != nil {
		t.Fatal(err)
	}
}

// exit waits for the process to end by itself and returns its code.
func (p *process) exit(t *testing.T) int {
	t.Helper()
	timer := time.NewTimer(eventually)
	defer timer.Stop()
	select {
	case <-p.exited:
		return p.cmd.ProcessState.ExitCode()
	case <-timer.C:
		t.Fatal("the server does not end")
		return 0
	}
}

func (p *process) sessions() fencelockv1connect.SessionServiceClient {
	return fencelockv1connect.NewSessionServiceClient(http.DefaultClient, p.rpc)
}

func (p *process) locks() fencelockv1connect.LockServiceClient {
	return fencelockv1connect.NewLockServiceClient(http.DefaultClient, p.rpc)
}

func (p *process) open(t *testing.T) string {
	t.Helper()
	answer, err := p.sessions().OpenSession(t.Context(), connect.NewRequest(&fencelockv1.OpenSessionRequest{
		Owner: "tester", Ttl: durationpb.New(5 * time.Minute),
	}))
	if err != nil {
		t.Fatal(err)
	}
	return answer.Msg.GetSession().GetId()
}

func (p *process) acquire(t *testing.T, session, key, request string) int64 {
	t.Helper()
	answer, err := p.locks().Acquire(t.Context(), connect.NewRequest(&fencelockv1.AcquireRequest{Key: key, SessionId: session, RequestId: request}))
	if err != nil {
		t.Fatal(err)
	}
	if answer.Msg.GetGrant() == nil {
		t.Fatalf("acquire %s: %v", key, answer.Msg)
	}
	return answer.Msg.GetGrant().GetToken()
}

func (p *process) release(t *testing.T, session, key string, token int64) {
	t.Helper()
	answer, err := p.locks().Release(t.Context(), connect.NewRequest(&fencelockv1.ReleaseRequest{Key: key, SessionId: session, Token: token}))
	if err != nil || !answer.Msg.GetReleased() {
		t.Fatalf("release %s: %v, %v", key, answer, err)
	}
}

func (p *process) heartbeat(t *testing.T, session string) {
	t.Helper()
	if _, err := p.sessions().Heartbeat(t.Context(), connect.NewRequest(&fencelockv1.HeartbeatRequest{SessionId: session})); err != nil {
		t.Fatal(err)
	}
}

func TestTokensRiseAndSessionsLiveThroughSIGKILL(t *testing.T) {
	t.Parallel()
	dir := "--etcd.data-dir=" + t.TempDir()
	first := launch(t, dir)
	session := first.open(t)
	token := first.acquire(t, session, "demo", "r1")
	kept := first.acquire(t, session, "kept", "r1")
	first.release(t, session, "demo", token)
	first.kill()
	second := launch(t, dir)
	second.heartbeat(t, session)
	if again := second.acquire(t, session, "kept", "r1"); again != kept {
		t.Errorf("the grant of token %d became %d", kept, again)
	}
	if next := second.acquire(t, session, "demo", "r2"); next <= token {
		t.Errorf("token %d after %d: it must rise", next, token)
	}
}

func TestASessionOpenedOnOneServerLivesOnAnother(t *testing.T) {
	t.Parallel()
	store := testenv.Etcd(t)
	args := []string{
		"--lock.backend=etcd", "--etcd.endpoints=" + strings.Join(store.Endpoints, ","),
		"--etcd.prefix=" + rand.Text() + "/", "--etcd.data-dir=" + t.TempDir(),
	}
	first, second := launch(t, args...), launch(t, args...)
	session := first.open(t)
	token := first.acquire(t, session, "shared", "r1")
	second.heartbeat(t, session)
	waiting := second.open(t)
	granted := make(chan int64, 1)
	go func() {
		answer, err := second.locks().Acquire(t.Context(), connect.NewRequest(&fencelockv1.AcquireRequest{
			Key: "shared", SessionId: waiting, RequestId: "r1", Wait: durationpb.New(eventually),
		}))
		if err != nil {
			t.Errorf("wait: %v", err)
		}
		granted <- answer.Msg.GetGrant().GetToken()
	}()
	first.kill()
	second.heartbeat(t, session)
	second.release(t, session, "shared", token)
	if next := <-granted; next <= token {
		t.Errorf("the waiter got token %d after %d", next, token)
	}
}

func TestSIGTERMDrains(t *testing.T) {
	t.Parallel()
	dir := "--etcd.data-dir=" + t.TempDir()
	p := launch(t, dir)
	session := p.open(t)
	token := p.acquire(t, session, "kept", "r1")
	waiting := p.open(t)
	ended := make(chan error, 1)
	go func() {
		_, err := p.locks().Acquire(t.Context(), connect.NewRequest(&fencelockv1.AcquireRequest{
			Key: "kept", SessionId: waiting, RequestId: "r1", Wait: durationpb.New(time.Hour),
		}))
		ended <- err
	}()
	p.waitForWaiter(t)
	p.signal(t, syscall.SIGTERM)
	// A cut connection is unavailable too; only the server's own answer has a detail.
	var answer *connect.Error
	if err := <-ended; !errors.As(err, &answer) || answer.Code() != connect.CodeUnavailable || len(answer.Details()) == 0 {
		t.Errorf("the wait ended with %v, want unavailable in the server's own words", err)
	}
	if code := p.exit(t); code != 0 {
		t.Errorf("exit code %d: %s", code, p.errors)
	}
	if again := launch(t, dir).acquire(t, session, "kept", "r1"); again != token {
		t.Errorf("the grant of token %d became %d", token, again)
	}
}

// waitForWaiter returns once a call stands in line.
func (p *process) waitForWaiter(t *testing.T) {
	t.Helper()
	admin := fencelockv1connect.NewAdminServiceClient(http.DefaultClient, p.rpc)
	ctx, cancel := context.WithTimeout(t.Context(), eventually)
	defer cancel()
	for {
		info, err := admin.GetServerInfo(ctx, connect.NewRequest(&fencelockv1.GetServerInfoRequest{}))
		if err != nil {
			t.Fatal(err)
		}
		if info.Msg.GetWaiters() > 0 {
			return
		}
	}
}

func TestASecondSignalEndsTheServerAtOnce(t *testing.T) {
	t.Parallel()
	p := launch(t, "--etcd.data-dir="+t.TempDir(), "--server.drain-timeout=10m")
	// A request that is half here is in flight, and holds up the drain.
	conn, err := new(net.Dialer).DialContext(t.Context(), "tcp", strings.TrimPrefix(p.rpc, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	head := "POST " + fencelockv1connect.LockServiceInspectProcedure + " HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n{"
	if _, err := io.WriteString(conn, head); err != nil {
		t.Fatal(err)
	}
	p.open(t) // a round trip later the connection before it has been accepted
	p.signal(t, syscall.SIGTERM)
	p.waitForLog(t, `"draining"`)
	p.signal(t, syscall.SIGTERM)
	if code := p.exit(t); code != exitFailed {
		t.Errorf("exit code %d, want %d", code, exitFailed)
	}
}

// waitForLog returns once the log has the text.
func (p *process) waitForLog(t *testing.T, text string) {
	t.Helper()
	timer := time.NewTimer(eventually)
	defer timer.Stop()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for !strings.Contains(p.errors.String(), text) {
		select {
		case <-tick.C:
		case <-timer.C:
			t.Fatalf("no %s in the log: %s", text, p.errors)
		}
	}
}

func TestADirectoryInUseIsOneClearLine(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	launch(t, "--etcd.data-dir="+dir)
	second := begin(t, "--etcd.data-dir="+dir)
	if code := second.exit(t); code != exitFailed {
		t.Errorf("exit code %d, want %d", code, exitFailed)
	}
	if text := second.errors.String(); strings.Count(text, "\n") != 1 || !strings.Contains(text, "in use") || !strings.Contains(text, dir) {
		t.Errorf("it says %q, want one line that names %s", text, dir)
	}
}

func TestTwoServersSideBySide(t *testing.T) {
	t.Parallel()
	first, second := launch(t, "--etcd.data-dir="+t.TempDir()), launch(t, "--etcd.data-dir="+t.TempDir())
	first.acquire(t, first.open(t), "demo", "r1")
	second.acquire(t, second.open(t), "demo", "r1")
}

func TestTheReadyLineNamesAddressBackendAndDirectory(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	p := launch(t, "--etcd.data-dir="+dir)
	if !strings.Contains(p.ready, "embedded etcd in "+dir) {
		t.Errorf("ready line %q", p.ready)
	}
	for path, want := range map[string]int{"/healthz": http.StatusOK, "/readyz": http.StatusOK, "/metrics": http.StatusOK, "/debug/pprof/": http.StatusNotFound} {
		response, err := http.Get(p.admin + path)
		if err != nil {
			t.Fatal(err)
		}
		_ = response.Body.Close()
		if response.StatusCode != want {
			t.Errorf("%s: %d, want %d", path, response.StatusCode, want)
		}
	}
}

func TestCommands(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		args []string
		code int
		out  string
		err  string
	}{
		"version":         {args: []string{"version"}, out: version()},
		"version flag":    {args: []string{"--version"}, out: version()},
		"help":            {args: []string{"--help"}, out: "--lock.session.ttl"},
		"config":          {args: []string{"config", "--lock.session.ttl=20s"}, out: "lock.session.ttl: 20s"},
		"unknown command": {args: []string{"fly"}, code: exitConfig, err: "fly"},
		"unknown key":     {args: []string{"--lock.session.tll=20s"}, code: exitConfig, err: "lock.session.tll"},
		"bad config":      {args: []string{"config", "--lock.session.ttl=1s"}, code: exitConfig, err: "lock.session.ttl"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var out, errs bytes.Buffer
			if code := run(test.args, nil, &out, &errs, nil); code != test.code {
				t.Errorf("exit code %d, want %d", code, test.code)
			}
			if !strings.Contains(out.String(), test.out) || !strings.Contains(errs.String(), test.err) {
				t.Errorf("it says %q and %q", out.String(), errs.String())
			}
			if test.err != "" && strings.Count(errs.String(), "\n") != 1 {
				t.Errorf("it says %q, want one line", errs.String())
			}
		})
	}
}

func TestTheReadyLineShowsTheHostAsConfigured(t *testing.T) {
	t.Parallel()
	p := launch(t, "--etcd.data-dir="+t.TempDir(), "--admin.addr=0.0.0.0:0")
	if !strings.HasPrefix(p.admin, "http://0.0.0.0:") || strings.HasSuffix(p.admin, ":0") {
		t.Errorf("ready line %q", p.ready)
	}
}

func TestAnAddressInUseIsOneClearLine(t *testing.T) {
	t.Parallel()
	listener, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = listener.Close() }()
	p := begin(t, "--etcd.data-dir="+t.TempDir(), "--server.addr="+listener.Addr().String())
	if code := p.exit(t); code != exitFailed {
		t.Errorf("exit code %d, want %d", code, exitFailed)
	}
	if text := p.errors.String(); !strings.Contains(text, "lockserver: listen") {
		t.Errorf("it says %q", text)
	}
}
