package guard

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Hold is a lock as the guard needs to see it.
type Hold struct {
	// Left returns how long the lock is still surely held, counted from the call;
	// zero or less means not at all.
	Left func() time.Duration
	// Lost is closed when the lock is known to be lost.
	Lost <-chan struct{}
}

// Command is what to run.
type Command struct {
	// Args is the command and its arguments.
	Args []string
	// Env is its whole environment.
	Env []string
	// Stdin, Stdout and Stderr are passed through; nil means the null device.
	Stdin, Stdout, Stderr *os.File
	// Grace is the time between TERM and the deadline.
	Grace time.Duration
}

// Result is how the command ended.
type Result struct {
	// Code is the command's exit code, 128 + n for signal n, 126 or 127 where it did not start.
	Code int `json:"code"`
	// Lost says that the command was stopped, or not started, because the lock was lost or about to be.
	Lost bool `json:"lost"`
	// Failure says why the command did not start; empty if it did.
	Failure string `json:"failure"`
}

// ErrGuardianDied says that the guardian ended before the command; the command
// was killed, with its whole group.
var ErrGuardianDied = errors.New("the guardian process was killed")

// poll is how often a group without a guardian is looked at.
const poll = 20 * time.Millisecond

// keeper is the program's side of the guard.
type keeper struct {
	hold     Hold
	grace    time.Duration
	guardian *exec.Cmd
	group    group
	orders   *json.Encoder
	deadline time.Time
	lost     bool
}

// Run runs the command and returns when no process of its group is left, whatever happens to the
// lock meanwhile. Signals that arrive on signals are passed to the group.
func Run(command Command, hold Hold, signals <-chan os.Signal) (Result, error) {
	guardian, orders, reports, err := start(command)
	if err != nil {
		return Result{}, fmt.Errorf("start guardian: %w", err)
	}
	defer reports.Close()
	defer orders.Close()
	k := &keeper{hold: hold, grace: command.Grace, guardian: guardian, orders: json.NewEncoder(orders)}
	result := k.converse(receive[report](reports), signals)
	// Its own end is told by the pipe; its exit code says nothing more.
	_ = guardian.Wait()
	if result == nil {
		k.killAll()
		return Result{Lost: k.lost}, ErrGuardianDied
	}
	return *result, nil
}

// start starts the guardian in a process group of its own, so that what is meant for this program's
// group (a terminal's interrupt or suspend) does not hit both.
func start(command Command) (guardian *exec.Cmd, orders, reports *os.File, err error) {
	path, err := self()
	if err != nil {
		return nil, nil, nil, err
	}
	ordersEnd, orders, err := os.Pipe()
	if err != nil {
		return nil, nil, nil, fmt.Errorf("make pipe: %w", err)
	}
	defer ordersEnd.Close()
	reports, reportsEnd, err := os.Pipe()
	if err != nil {
		_ = orders.Close()
		return nil, nil, nil, fmt.Errorf("make pipe: %w", err)
	}
	defer reportsEnd.Close()
	adoptOrphans()
	arguments := append([]string{Argument, command.Grace.String()}, command.Args...)
	guardian = exec.Command(path, arguments...) //nolint:gosec,noctx // what the user asks for; a context would kill it before its group
	guardian.Args[0] = os.Args[0]
	guardian.Env = command.Env
	guardian.ExtraFiles = []*os.File{ordersEnd, reportsEnd}
	guardian.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	attach(guardian, command)
	if err := guardian.Start(); err != nil {
		_ = orders.Close()
		_ = reports.Close()
		return nil, nil, nil, fmt.Errorf("start process: %w", err)
	}
	return guardian, orders, reports, nil
}

// attach passes the standard streams; a nil file must not become a non-nil interface.
func attach(guardian *exec.Cmd, command Command) {
	if command.Stdin != nil {
		guardian.Stdin = command.Stdin
	}
	if command.Stdout != nil {
		guardian.Stdout = command.Stdout
	}
	if command.Stderr != nil {
		guardian.Stderr = command.Stderr
	}
}

// converse answers the guardian until it has reported the end, or is gone (nil).
func (k *keeper) converse(reports <-chan report, signals <-chan os.Signal) *Result {
	lost := k.hold.Lost
	var backstop <-chan time.Time
	var result *Result
	for {
		select {
		case r, ok := <-reports:
			if !ok {
				return result
			}
			k.hear(r)
			if r.Ended != nil {
				result = r.Ended
			}
		case <-lost:
			lost, k.lost = nil, true
			k.tell(order{Stop: true})
			backstop = time.After(min(k.grace, time.Until(k.deadline)))
		case <-backstop:
			// The guardian has stopped the group by now, unless it is frozen.
			k.kill()
			_ = k.guardian.Process.Kill()
		case s := <-signals:
			if n, ok := s.(syscall.Signal); ok {
				k.tell(order{Signal: n})
			}
		}
	}
}

// hear takes in one report.
func (k *keeper) hear(r report) {
	if r.Group != 0 {
		k.group.id = r.Group
	}
	if r.Ask != 0 {
		left := k.hold.Left()
		if left <= 0 {
			// No later deadline: the one before still bounds the time to end in peace.
			k.tell(order{Stop: true})
			return
		}
		k.deadline = time.Now().Add(left)
		k.tell(order{Answer: r.Ask, Left: left})
	}
}

// tell sends an order. A guardian that is gone shows at the other pipe.
func (k *keeper) tell(o order) { _ = k.orders.Encode(o) } //nolint:errchkjson // as said above

// kill kills the group, if it is known.
func (k *keeper) kill() {
	if k.group.id != 0 {
		k.group.signal(unix.SIGKILL)
	}
}

// killAll kills the group and waits until it is gone. Only for when the
// guardian is dead: its orphans are then this program's children.
func (k *keeper) killAll() {
	if k.group.id == 0 {
		return
	}
	ticker := time.NewTicker(poll)
	defer ticker.Stop()
	for !k.group.gone() {
		k.kill()
		<-ticker.C
	}
}
