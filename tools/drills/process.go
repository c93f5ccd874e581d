package drills

import (
	"bytes"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"time"
)

// patience bounds every wait of a drill: far beyond what a busy machine needs,
// so that running into it means that something does not happen at all.
const patience = 90 * time.Second

// Process is one running program. It is killed at the end of the test.
type Process struct {
	cmd    *exec.Cmd
	out    *output
	exited chan struct{}
	state  *os.ProcessState
}

// Start runs the binary with the arguments. env adds to the environment.
func Start(t T, env []string, binary string, args ...string) *Process {
	t.Helper()
	p := &Process{cmd: exec.Command(binary, args...), out: newOutput(), exited: make(chan struct{})}
	p.cmd.Env = append(os.Environ(), env...)
	p.cmd.Stdout, p.cmd.Stderr = p.out, p.out
	// What the program leaves behind must not keep its end from being noticed.
	p.cmd.WaitDelay = 5 * time.Second
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := p.cmd.Start(); err != nil {
		t.Fatalf("start %s: %v", binary, err)
	}
	go func() {
		_ = p.cmd.Wait()
		p.state = p.cmd.ProcessState
		close(p.exited)
	}()
	t.Cleanup(func() {
		p.Signal(syscall.SIGCONT)
		p.Kill()
	})
	return p
}

// Signal sends a signal to the process; one that has ended is left alone.
func (p *Process) Signal(s syscall.Signal) {
	select {
	case <-p.exited:
	default:
		_ = p.cmd.Process.Signal(s)
	}
}

// Kill ends the process with SIGKILL and waits for its end.
func (p *Process) Kill() {
	p.Signal(syscall.SIGKILL)
	<-p.exited
}

// Freeze stops the process with SIGSTOP; Thaw lets it go on.
func (p *Process) Freeze() { p.Signal(syscall.SIGSTOP) }

// Thaw continues a frozen process.
func (p *Process) Thaw() { p.Signal(syscall.SIGCONT) }

// Exited is closed when the process has ended.
func (p *Process) Exited() <-chan struct{} { return p.exited }

// ExitCode is the exit code after Exited; -1 after a signal.
func (p *Process) ExitCode() int { return p.state.ExitCode() }

// Output is everything that the process has printed so far.
func (p *Process) Output() string { return p.out.String() }

// AwaitOutput blocks until the process has printed text, and fails the test if it ends before.
func (p *Process) AwaitOutput(t T, text string) {
	t.Helper()
	limit := time.NewTimer(patience)
	defer limit.Stop()
	for {
		changed := p.out.changed()
		if strings.Contains(p.out.String(), text) {
			return
		}
		select {
		case <-changed:
		case <-p.exited:
			if strings.Contains(p.out.String(), text) {
				return
			}
			t.Fatalf("process ended (%v) without printing %q; it printed:\n%s", p.state, text, p.out)
		case <-limit.C:
			t.Fatalf("no %q within %v; printed so far:\n%s", text, patience, p.out)
		}
	}
}

// output collects what a process prints and signals each change.
type output struct {
	mu     sync.Mutex
	buf    bytes.Buffer
	signal chan struct{}
}

func newOutput() *output { return &output{signal: make(chan struct{})} }

// Write implements io.Writer.
func (o *output) Write(b []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.buf.Write(b)
	close(o.signal)
	o.signal = make(chan struct{})
	return len(b), nil
}

// String returns what was printed so far.
func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.buf.String()
}

func (o *output) changed() <-chan struct{} {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.signal
}
