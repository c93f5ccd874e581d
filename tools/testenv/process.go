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

// process is an etcd that runs on this machine.
type process struct {
	binary string
	dir    string
	client string
	peer   string
	args   []string

	mu      sync.Mutex
	running *child
}

// child is one run of the binary.
type child struct {
	cmd   *exec.Cmd
	input io.Closer
	done  chan struct{}
	err   error
}

func newProcess(ctx context.Context, s settings, dir string, args []string) (host, error) {
	binary, err := build(ctx, s.version)
	if err != nil {
		return nil, err
	}
	client, err := freeAddress()
	if err != nil {
		return nil, err
	}
	peer, err := freeAddress()
	if err != nil {
		return nil, err
	}
	if dir == "" {
		if dir, err = os.MkdirTemp("", "fencelock-etcd-"); err != nil {
			return nil, fmt.Errorf("make folder for etcd: %w", err)
		}
	}
	return &process{
		binary: binary, dir: dir, client: "http://" + client, peer: "http://" + peer, args: args,
	}, nil
}

func (p *process) endpoint() string { return p.client }

func (p *process) start(context.Context) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	logFile, err := os.OpenFile(p.logPath(), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("open etcd log: %w", err)
	}
	defer logFile.Close()
	// The context must not end the server: its start is what it bounds.
	cmd := exec.Command(p.binary, append(etcdArgs(filepath.Join(p.dir, "data"), p.client, p.client, p.peer), p.args...)...)
	cmd.Env = append(os.Environ(), "TESTENV_DATA_DIR="+p.dir)
	cmd.Stdout, cmd.Stderr = logFile, logFile
	// A group of its own: an interrupt at the terminal ends the tests first, they end it.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	input, err := cmd.StdinPipe()
	if err != nil {
		return fmt.Errorf("open etcd input: %w", err)
	}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("start etcd: %w", err)
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
	if err := c.signal(syscall.SIGTERM); err != nil {
		return err
	}
	limit := time.NewTimer(stopLimit)
	defer limit.Stop()
	select {
	case <-c.done:
		return nil
	case <-limit.C:
		return errors.Join(fmt.Errorf("stop etcd: still there after %v", stopLimit), c.kill())
	}
}

func (p *process) kill() error {
	c := p.take()
	if c == nil {
		return nil
	}
	return c.kill()
}

func (c *child) kill() error {
	err := c.signal(syscall.SIGKILL)
	<-c.done
	return err
}

// signal sends sig unless the process has ended.
func (c *child) signal(sig os.Signal) error {
	err := c.cmd.Process.Signal(sig)
	if err == nil || errors.Is(err, os.ErrProcessDone) {
		return nil
	}
	return fmt.Errorf("signal etcd: %w", err)
}

// take returns the child and forgets it.
func (p *process) take() *child {
	p.mu.Lock()
	defer p.mu.Unlock()
	c := p.running
	p.running = nil
	return c
}

func (p *process) pause() error  { return p.signal(syscall.SIGSTOP) }
func (p *process) resume() error { return p.signal(syscall.SIGCONT) }

func (p *process) signal(sig os.Signal) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.running == nil {
		return errors.New("etcd does not run")
	}
	return p.running.signal(sig)
}

func (p *process) remove() error {
	return errors.Join(p.kill(), os.RemoveAll(p.dir))
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

func (p *process) logPath() string { return filepath.Join(p.dir, "etcd.log") }

func (p *process) log() string {
	const most = 4 << 10
	text, err := os.ReadFile(p.logPath())
	if err != nil {
		return err.Error()
	}
	return string(text[max(0, len(text)-most):])
}

// etcdArgs is the command line of a one-member etcd. fsync stays on.
func etcdArgs(data, listen, advertise, peer string) []string {
	return []string{
		"--name=test",
		"--data-dir=" + data,
		"--listen-client-urls=" + listen,
		"--advertise-client-urls=" + advertise,
		"--listen-peer-urls=" + peer,
		"--initial-advertise-peer-urls=" + peer,
		"--initial-cluster=test=" + peer,
		"--log-level=warn",
	}
}
