package main

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/fencelock/fencelock/apps/payout-executor/internal/payout"
	"github.com/fencelock/fencelock/apps/program"
)

// binary is the program as "make build" makes it: without the race detector, whatever the tests run with. The tag leaves out
// debug pages of a library whose templates would keep every method of the program alive, and with them 7 MB.
type binary struct {
	once sync.Once
	dir  string
	err  error
}

var built binary

func (b *binary) build() {
	if b.dir, b.err = os.MkdirTemp("", "payout-executor"); b.err != nil {
		return
	}
	if out, err := exec.Command("go", "build", "-trimpath", "-tags=grpcnotrace", "-o", b.dir, ".").CombinedOutput(); err != nil {
		b.err = fmt.Errorf("build payout-executor: %w: %s", err, out)
	}
}

// remove cleans up in the end.
func (b *binary) remove() {
	if b.dir != "" {
		_ = os.RemoveAll(b.dir)
	}
}

// executable builds the program, once.
func executable(t *testing.T) string {
	t.Helper()
	built.once.Do(built.build)
	if built.err != nil {
		t.Fatal(built.err)
	}
	return filepath.Join(built.dir, "payout-executor")
}

// process is the real program.
type process struct {
	stage   *stage
	command *exec.Cmd
	admin   string
	log     lines
}

// launch starts the real program on the stage, and waits until it is ready.
func (s *stage) launch(t *testing.T, args ...string) *process {
	t.Helper()
	p := &process{stage: s, command: exec.Command(executable(t), append(s.at(args...), "--payout.admin-addr=127.0.0.1:0")...)}
	p.command.Env = []string{"HOME=" + t.TempDir()}
	p.command.Stderr = &p.log
	out, err := p.command.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := p.command.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = p.command.Process.Kill()
		_ = p.command.Wait()
	})
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatalf("it ended: %v", err)
	}
	_, p.admin, _ = strings.Cut(strings.TrimSpace(line), "admin ")
	return p
}

// TestAKilledProcessIsRecoveredFrom: it is killed while it submits. When its session has died, another one finishes what it began.
func TestAKilledProcessIsRecoveredFrom(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	held, let := s.holdSubmit()
	defer let()
	first := s.launch(t, "--payout.session-ttl=2s", "--payout.poll-interval=50ms")
	<-held
	if err := first.command.Process.Signal(syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	_ = first.command.Wait()
	let() // the call was on its way
	s.launch(t, "--payout.session-ttl=2s", "--payout.poll-interval=50ms")
	until(t, "another one has finished it", func() bool { return s.State(thePayout) == wire(payout.StatePosted) })
	s.wantPosted(t)
}

// TestASecondSignalEndsItAtOnce: the work in hand is left as it is, with its lock.
func TestASecondSignalEndsItAtOnce(t *testing.T) {
	t.Parallel()
	p := stopped(t, "--payout.stop-timeout=10m")
	until(t, "it is stopping", func() bool { return strings.Contains(p.log.text(), `"stopping"`) })
	if err := p.command.Process.Signal(syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	p.leavesItsLock(t)
}

// TestWorkThatDoesNotEndKeepsItsLock: the time for stopping is over; the lock is left to die with the session. It is a process, since the
// work goes on for as long as there is one.
func TestWorkThatDoesNotEndKeepsItsLock(t *testing.T) {
	t.Parallel()
	p := stopped(t, "--payout.stop-timeout=1s")
	p.leavesItsLock(t)
	if !strings.Contains(p.log.text(), `"stop_cut_short"`) {
		t.Errorf("it says nothing of it: %s", p.log.text())
	}
}

// stopped is a process that is told to stop while the rail does not answer it.
func stopped(t *testing.T, args ...string) *process {
	t.Helper()
	s := newStage(t)
	held, let := s.holdSubmit()
	t.Cleanup(let)
	p := s.launch(t, append(args, "--payout.session-ttl=1m")...)
	<-held
	if err := p.command.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	return p
}

// leavesItsLock waits for the end of a process that has work in hand.
func (p *process) leavesItsLock(t *testing.T) {
	t.Helper()
	var exit *exec.ExitError
	if err := p.command.Wait(); !errors.As(err, &exit) || exit.ExitCode() != program.ExitFailed {
		t.Errorf("it ended with %v", err)
	}
	if !p.stage.isLocked(t) {
		t.Error("the lock was released while the work went on")
	}
}
