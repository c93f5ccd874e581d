package testenv

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// familyLimit bounds how long processes take to heed a signal that they cannot refuse; a write to
// a slow disk is what they may have to end first.
const familyLimit = 30 * time.Second

// relative is a process of a family.
type relative struct {
	pid int
	// state is one letter, as ps writes it: T is stopped, Z has ended.
	state byte
}

// killChildren kills the children of a server that are in groups of their own. The server itself is
// frozen first, so that it starts no more of them, and while it is there it is known which are gone.
func (c *child) killChildren() error {
	if err := c.signal(syscall.SIGSTOP); err != nil {
		return err
	}
	return c.await("ZT", "Z", syscall.SIGKILL)
}

// pauseFamily freezes a server with its children.
func (c *child) pauseFamily() error {
	if err := c.signal(syscall.SIGSTOP); err != nil {
		return err
	}
	return c.await("ZT", "ZT", syscall.SIGSTOP)
}

// resumeFamily undoes pauseFamily.
func (c *child) resumeFamily() error {
	_, children, err := c.family()
	if err != nil {
		return err
	}
	return errors.Join(signalAll(children, syscall.SIGCONT), c.signal(syscall.SIGCONT))
}

// await sends sig to the children until each is in one of the states, and the server in one of its.
func (c *child) await(server, children string, sig syscall.Signal) error {
	limit := time.NewTimer(familyLimit)
	defer limit.Stop()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for {
		own, all, err := c.family()
		if err != nil {
			return err
		}
		var rest []relative
		for _, r := range all {
			if !strings.ContainsRune(children, rune(r.state)) {
				rest = append(rest, r)
			}
		}
		if len(rest) == 0 && strings.ContainsRune(server, rune(own.state)) {
			return nil
		}
		if err := signalAll(rest, sig); err != nil {
			return err
		}
		select {
		case <-tick.C:
		case <-limit.C:
			return fmt.Errorf("processes %v do not heed %v", rest, sig)
		}
	}
}

// family lists a server and its children. A server that is gone counts as ended.
func (c *child) family() (server relative, children []relative, err error) {
	out, err := exec.Command("ps", "-A", "-o", "pid=", "-o", "ppid=", "-o", "stat=").Output()
	if err != nil {
		return server, nil, fmt.Errorf("list processes (ps is in the package procps): %w", explain(err))
	}
	server = relative{pid: c.cmd.Process.Pid, state: 'Z'}
	for lines := bufio.NewScanner(bytes.NewReader(out)); lines.Scan(); {
		fields := strings.Fields(lines.Text())
		if len(fields) != 3 {
			continue
		}
		pid, _ := strconv.Atoi(fields[0])
		parent, _ := strconv.Atoi(fields[1])
		switch server.pid {
		case pid:
			server.state = fields[2][0]
		case parent:
			children = append(children, relative{pid: pid, state: fields[2][0]})
		}
	}
	return server, children, nil
}

func signalAll(all []relative, sig syscall.Signal) error {
	for _, r := range all {
		if err := syscall.Kill(r.pid, sig); err != nil && !errors.Is(err, syscall.ESRCH) {
			return fmt.Errorf("send %v to process %d: %w", sig, r.pid, err)
		}
	}
	return nil
}
