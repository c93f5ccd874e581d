package testenv

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"time"
)

// stopLimit bounds a stop in good order.
const stopLimit = 30 * time.Second

// local is how a program runs as a process of this machine.
type local struct {
	path string
	args []string
	env  []string
	// stop is the signal that ends it in good order.
	stop syscall.Signal
	// user is whose process it is; nil is this process's own.
	user *syscall.Credential
	// stranger: it does not end with its input as our own commands do, and its child processes are
	// in groups of their own.
	stranger bool
}

// process is a server that runs on this machine.
type process struct {
	plan    local
	name    string
	dir     string
	url     string
	watcher *watcher

	mu      sync.Mutex
	running *child
}

// child is one run of the program.
type child struct {
	cmd   *exec.Cmd
	input io.Closer
	done  chan struct{}
	err   error
}

func newProcess(ctx context.Context, version string, p program) (host, error) {
	address, err := freeAddress()
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "fencelock-test-")
	if err != nil {
		return nil, fmt.Errorf("make folder for %s: %w", p.name(), err)
	}
	h := &process{name: p.name(), dir: dir, url: p.endpoint(address)}
	if h.watcher, err = watchFolder(dir); err != nil {
		return nil, errors.Join(err, h.remove())
	}
	if h.plan, err = p.local(ctx, version, dir, address); err != nil {
		return nil, errors.Join(err, h.remove())
	}
	return h, nil
}

func (p *process) endpoint() string { return p.url }

func (p *process) start(context.Context) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	logFile, err := os.OpenFile(p.logPath(), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("open log of %s: %w", p.name, err)
	}
	defer logFile.Close()
	// The context must not end the server: its start is what it bounds.
	cmd := exec.Command(p.plan.path, p.plan.args...)
	cmd.Dir = p.dir
	cmd.Env = append(os.Environ(), p.plan.env...)
	cmd.Stdout, cmd.Stderr = logFile, logFile
	// A group of its own: an interrupt at the terminal ends the tests first, they end it.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Credential: p.plan.user}
	input, err := cmd.StdinPipe()
	if err != nil {
		return fmt.Errorf("open input of %s: %w", p.name, err)
	}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("start %s: %w", p.name, err)
	}
	c := &child{cmd: cmd, input: input, done: make(chan struct{})}
	go c.wait()
	p.running = c
	return nil
}

func (c *child) wait() {
	defer close(c.done)
	c.err = c.cmd.Wait()
	if c.err == nil {
		c.err = errors.New("exit status 0")
	}
}

func (p *process) stop() error {
	c := p.take()
	if c == nil {
		return nil
	}
	if err := c.signal(p.plan.stop); err != nil {
		return err
	}
	limit := time.NewTimer(stopLimit)
	defer limit.Stop()
	select {
	case <-c.done:
		return nil
	case <-limit.C:
		return errors.Join(fmt.Errorf("stop %s: still there after %v", p.name, stopLimit), p.end(c))
	}
}

func (p *process) kill() error {
	c := p.take()
	if c == nil {
		return nil
	}
	return p.end(c)
}

// end kills the child, with its family if it has one.
func (p *process) end(c *child) error {
	var orphans error
	if p.plan.stranger {
		orphans = c.killChildren()
	}
	err := c.signal(syscall.SIGKILL)
	<-c.done
	return errors.Join(orphans, err)
}

// signal sends sig unless the process has ended.
func (c *child) signal(sig os.Signal) error {
	err := c.cmd.Process.Signal(sig)
	if err == nil || errors.Is(err, os.ErrProcessDone) {
		return nil
	}
	return fmt.Errorf("send %v: %w", sig, err)
}

// take returns the child and forgets it.
func (p *process) take() *child {
	p.mu.Lock()
	defer p.mu.Unlock()
	c := p.running
	p.running = nil
	return c
}

func (p *process) pause() error {
	return p.withChild(func(c *child) error {
		if p.plan.stranger {
			return c.pauseFamily()
		}
		return c.signal(syscall.SIGSTOP)
	})
}

func (p *process) resume() error {
	return p.withChild(func(c *child) error {
		if p.plan.stranger {
			return c.resumeFamily()
		}
		return c.signal(syscall.SIGCONT)
	})
}

func (p *process) withChild(do func(*child) error) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.running == nil {
		return errors.New("it does not run")
	}
	return do(p.running)
}

func (p *process) remove() error {
	return errors.Join(p.kill(), p.watcher.stop(), os.RemoveAll(p.dir))
}

func (p *process) ended() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.running == nil {
		return errors.New("it was not started")
	}
	select {
	case <-p.running.done:
		return p.running.err
	default:
		return nil
	}
}

func (p *process) logPath() string { return filepath.Join(p.dir, "log") }

func (p *process) log() string {
	const most = 4 << 10
	text, err := os.ReadFile(p.logPath())
	if err != nil {
		return err.Error()
	}
	return string(text[max(0, len(text)-most):])
}

// watchFolder ends the servers of a folder and removes it when this process is gone. It finds them
// by their command line, which a server that starts just then has already, and forgets the piece of
// shared memory that a killed PostgreSQL leaves.
func watchFolder(dir string) (*watcher, error) {
	return watch(`
memory=$(sed -n '7s/.* //p' "$1/data/postmaster.pid" 2>/dev/null)
servers() { ps -A -o pid= -o args= | awk -v dir="$1" 'index($0, dir "/") { print $1 }'; }
tries=0
while pids=$(servers "$1"); [ -n "$pids" ] && [ $tries -lt 100 ]; do
	kill -CONT $pids; kill -QUIT $pids
	tries=$((tries + 1)); sleep 0.1
done 2>/dev/null
[ -z "$pids" ] || kill -KILL $pids
[ -z "$memory" ] || ipcrm -m "$memory" 2>/dev/null
tries=0
until rm -rf "$1" 2>/dev/null || [ $tries -ge 50 ]; do tries=$((tries + 1)); sleep 0.1; done
`, nil, dir)
}
