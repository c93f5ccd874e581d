package main

import (
	"bufio"
	"bytes"
	"context"
	"io"
	"net/http"
	"os"
	"os/exec"
	"regexp"
	"slices"
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
		main()
	}
	os.Exit(testenv.Main(m).Run())
}

// process is a running server.
type process struct {
	cmd        *exec.Cmd
	rpc, admin string
	// ready is the first line of its output, errors what it said after that and on standard error.
	ready  string
	errors *buffer
	exited chan struct{}
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

// place is where a server keeps its locks, as it is told.
type place struct{ env, args []string }

// launch starts a server on free ports and waits until it says that it is ready.
func launch(t *testing.T, args ...string) *process {
	t.Helper()
	return place{}.launch(t, args...)
}

// begin starts a server and waits for its first line of output, if there is one.
func begin(t *testing.T, args ...string) *process {
	t.Helper()
	return place{}.begin(t, args...)
}

func (at place) launch(t *testing.T, args ...string) *process {
	t.Helper()
	p := at.begin(t, args...)
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

func (at place) begin(t *testing.T, args ...string) *process {
	t.Helper()
	args = slices.Concat([]string{"--server.addr=127.0.0.1:0", "--admin.addr=127.0.0.1:0"}, at.args, args)
	p := &process{cmd: exec.Command(os.Args[0], args...), errors: &buffer{}, exited: make(chan struct{})}
	p.cmd.Env = slices.Concat(os.Environ(), at.env, []string{childMark + "=1"})
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
	lines := bufio.NewReader(output)
	p.ready, _ = lines.ReadString('\n')
	go func() {
		defer close(p.exited)
		_, _ = io.Copy(p.errors, lines)
		_ = p.cmd.Wait()
	}()
	return p
}

// kill ends the process as abruptly as can be.
func (p *process) kill() {
	_ = p.cmd.Process.Kill()
	<-p.exited
}

func (p *process) terminate(t *testing.T) {
	t.Helper()
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil {
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
