package guard

import (
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fencelock/fencelock/core/clock"
	"github.com/fencelock/fencelock/core/port"
)

// Descriptors that the guardian gets from the program.
const (
	ordersFD  = 3
	reportsFD = 4
)

// Exit codes of a command that did not start, as shells give them.
const (
	codeNotExecutable = 126
	codeNotFound      = 127
)

// guardian is the process between the program and the command.
type guardian struct {
	clock    port.Clock
	reports  *json.Encoder
	orders   <-chan order
	schedule schedule
	group    group
	terminal terminal
	// pending is a signal that came before the command was started.
	pending syscall.Signal
	// asked and askedAt are the question in flight, or the last one; answered says which.
	asked    uint64
	askedAt  time.Duration
	answered uint64
}

// Argument is the first argument with which [Run] starts this very program again. The program must
// then call [Main] with the arguments that follow, before anything else.
const Argument = "__guard"

// Main is the guardian. Its arguments are the grace, then the command. It returns
// the exit code, which nobody reads.
func Main(args []string) int {
	// The kernel's promise to kill the command with its parent is about the parent's thread.
	runtime.LockOSThread()
	// Neither may leak into the command: an end of the pipe that stays open in it
	// would hide the end of the program or of the guardian.
	syscall.CloseOnExec(ordersFD)
	syscall.CloseOnExec(reportsFD)
	if len(args) < 2 {
		return 1
	}
	grace, err := time.ParseDuration(args[0])
	if err != nil {
		return 1
	}
	// Signals meant for the program may hit its double too. The program decides what
	// they mean. Caught, not ignored: what is ignored stays so in the command.
	stray := make(chan os.Signal, 1)
	signal.Notify(stray, unix.SIGINT, unix.SIGTERM, unix.SIGHUP, unix.SIGQUIT, unix.SIGUSR1, unix.SIGUSR2)
	adoptOrphans()

	g := &guardian{
		clock:    clock.Boot{},
		reports:  json.NewEncoder(os.NewFile(reportsFD, "reports")),
		orders:   receive[order](os.NewFile(ordersFD, "orders")),
		schedule: schedule{grace: grace},
		group:    group{everyone: true},
	}
	result := g.run(args[1:])
	g.terminal.takeBack()
	g.report(report{Ended: &result})
	return 0
}

// run sees the command through.
func (g *guardian) run(args []string) Result {
	if !g.firstAnswer() {
		return Result{Lost: true}
	}
	children := make(chan os.Signal, 1)
	signal.Notify(children, unix.SIGCHLD)
	if failure := g.start(args); failure != nil {
		return *failure
	}
	ticker := time.NewTicker(interval(g.schedule.grace))
	defer ticker.Stop()
	for !g.group.gone() {
		g.act()
		select {
		case <-children:
		case <-ticker.C:
			g.ask()
		case o, ok := <-g.orders:
			g.obey(o, ok)
		}
	}
	return Result{Code: g.group.code(), Lost: g.schedule.lost}
}

// interval is how often the guardian asks and looks: often enough to be exact within
// a small part of the grace.
func interval(grace time.Duration) time.Duration {
	return min(max(grace/16, 10*time.Millisecond), 250*time.Millisecond)
}

// firstAnswer learns the deadline before anything is started, and reports
// whether there is time enough to start.
func (g *guardian) firstAnswer() bool {
	g.ask()
	for o := range g.orders {
		g.obey(o, true)
		if g.schedule.stopping {
			return false
		}
		if g.answered == g.asked {
			return !g.schedule.endangered(g.clock.Elapsed())
		}
	}
	return false
}

// start starts the command, or says why not.
func (g *guardian) start(args []string) *Result {
	path, err := exec.LookPath(args[0])
	if err == nil {
		attr := &syscall.SysProcAttr{Setpgid: true}
		tie(attr)
		g.terminal = lendTerminal(attr)
		var p *os.Process
		p, err = os.StartProcess(path, args, &os.ProcAttr{
			Files: []*os.File{os.Stdin, os.Stdout, os.Stderr}, Env: os.Environ(), Sys: attr,
		})
		if err == nil {
			g.group.id = p.Pid
			// The group is reaped by number; the handle is not needed.
			_ = p.Release()
			g.report(report{Group: g.group.id})
			if g.pending != 0 {
				g.group.signal(g.pending)
			}
			return nil
		}
	}
	code := codeNotExecutable
	if errors.Is(err, exec.ErrNotFound) || errors.Is(err, fs.ErrNotExist) {
		code = codeNotFound
	}
	return &Result{Code: code, Failure: err.Error()}
}

// act does what is due.
func (g *guardian) act() {
	now := g.clock.Elapsed()
	begun := false
	switch {
	case g.schedule.endangered(now):
		begun = g.schedule.lose(now)
	case g.group.ended:
		begun = g.schedule.stop(now)
	}
	if begun {
		g.group.terminate()
	}
	if g.schedule.killDue(now) {
		g.group.signal(unix.SIGKILL)
	}
	if g.group.paused {
		// The terminal cannot suspend the holder of a lock: nobody would wake it.
		g.group.paused = false
		if g.terminal.lent() {
			g.group.signal(unix.SIGCONT)
		}
	}
}

// ask asks for the time left, one question at a time: a frozen program answers none,
// and its pipe must not fill.
func (g *guardian) ask() {
	if g.asked != g.answered || g.schedule.stopping {
		return
	}
	g.asked++
	g.askedAt = g.clock.Elapsed()
	g.report(report{Ask: g.asked})
}

// obey carries out an order; ok is false when the program is gone, and with it
// everyone who renews the lock.
func (g *guardian) obey(o order, ok bool) {
	if !ok {
		g.orders = nil
	}
	if !ok || o.Stop {
		if g.schedule.lose(g.clock.Elapsed()) && g.group.id != 0 {
			g.group.terminate()
		}
		return
	}
	if o.Answer != 0 && o.Answer == g.asked {
		g.answered = o.Answer
		g.schedule.move(g.askedAt + o.Left)
	}
	if o.Signal == 0 {
		return
	}
	if g.group.id == 0 {
		g.pending = o.Signal
		return
	}
	g.group.signal(o.Signal)
}

// report tells the program. One that is gone need not know.
func (g *guardian) report(r report) { _ = g.reports.Encode(r) } //nolint:errchkjson // as said above
