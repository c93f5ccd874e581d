package guard_test

import (
	"fmt"
	"os"
	"os/exec"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// startProgram starts a program of its own that runs a script under the guard, its lock good for
// left at any time.
func startProgram(t *testing.T, left, script string, attr *syscall.SysProcAttr, stdin *os.File) *exec.Cmd {
	t.Helper()
	p := exec.Command(os.Args[0], partProgram, left, script)
	if stdin != nil {
		p.Stdin = stdin
	}
	p.Stderr = os.Stderr
	p.SysProcAttr = attr
	if err := p.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = p.Process.Kill() // also one that is stopped
		_ = p.Wait()
	})
	return p
}

func TestIfTheProgramIsKilledTheGroupIsStopped(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ name, left, body string }{
		{"at once where it heeds TERM", "1h", "echo ready >&9; echo ready >&9; while :; do sleep 0.05; done"},
		{"by force where it does not", "8s", stubborn},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			tr := newTrace(t)
			p := startProgram(t, c.left, tr.script(c.body), nil, nil)
			readStubborn(t, tr)
			if err := p.Process.Kill(); err != nil {
				t.Fatal(err)
			}
			tr.awaitGone(t)
		})
	}
}

func TestIfTheProgramIsFrozenTheGroupIsStopped(t *testing.T) {
	t.Parallel()
	tr := newTrace(t)
	// All that a terminal's suspend would hit is frozen, not the program alone.
	p := startProgram(t, "8s", tr.script(stubborn), &syscall.SysProcAttr{Setpgid: true}, nil)
	readStubborn(t, tr)
	if err := unix.Kill(-p.Process.Pid, unix.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	tr.awaitGone(t) // while the program is still frozen
}

func TestIfProgramAndGuardianAreKilledTheCommandIsKilled(t *testing.T) {
	t.Parallel()
	tr := newTrace(t)
	p := startProgram(t, "1h", tr.script(`trap '' TERM; echo $PPID >&9; echo $$ >&9; exec sleep 1000`), nil, nil)
	guardian := tr.pid(t)
	tr.line(t)
	// Frozen first, so that neither sees the other's end.
	for _, pid := range []int{p.Process.Pid, guardian} {
		if err := unix.Kill(pid, unix.SIGSTOP); err != nil {
			t.Fatal(err)
		}
	}
	for _, pid := range []int{p.Process.Pid, guardian} {
		if err := unix.Kill(pid, unix.SIGKILL); err != nil {
			t.Fatal(err)
		}
	}
	tr.awaitGone(t)
}

// openTerminal returns both ends of a new pseudo terminal.
func openTerminal(t *testing.T) (control, terminal *os.File) {
	t.Helper()
	control, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { control.Close() })
	number, err := unix.IoctlGetInt(int(control.Fd()), unix.TIOCGPTN)
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.IoctlSetPointerInt(int(control.Fd()), unix.TIOCSPTLCK, 0); err != nil {
		t.Fatal(err)
	}
	terminal, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", number), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { terminal.Close() })
	return control, terminal
}

func TestTheCommandMayReadTheTerminalAndGivesItBack(t *testing.T) {
	t.Parallel()
	tr := newTrace(t)
	control, terminal := openTerminal(t)
	// The program leads a session on the terminal, as a shell would; its command must get the foreground, or
	// its first read stops it. Afterwards the program must have it back: it reads the last line itself.
	session := &syscall.SysProcAttr{Setsid: true, Setctty: true}
	shell := exec.Command("sh", "-c", `"$0" "$1" 1h "$2"; read last; echo "after $last" >"$3"`,
		os.Args[0], partProgram, tr.script(`echo ready >&9; read line; echo "$line" >&9`), tr.path)
	shell.Stdin, shell.SysProcAttr = terminal, session
	if err := shell.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = shell.Process.Kill()
		_ = shell.Wait()
	})
	keep, err := os.OpenFile(tr.path, os.O_RDWR, 0) // so that the trace does not end between the two writers
	if err != nil {
		t.Fatal(err)
	}
	defer keep.Close()
	tr.line(t)
	// 0x1a is what ^Z sends: the holder of a lock is not suspended by it.
	if _, err := control.WriteString("\x1a"); err != nil {
		t.Fatal(err)
	}
	if _, err := control.WriteString("hello\n"); err != nil {
		t.Fatal(err)
	}
	if got := tr.line(t); got != "hello" {
		t.Errorf("the command read %q", got)
	}
	if _, err := control.WriteString("bye\n"); err != nil {
		t.Fatal(err)
	}
	if got := tr.line(t); got != "after bye" {
		t.Errorf("the shell read %q", got)
	}
}

func TestWithoutATerminalInTheForegroundNothingIsLent(t *testing.T) {
	t.Parallel()
	tr := newTrace(t)
	_, terminal := openTerminal(t)
	// Not the session of this terminal: asking for its foreground would fail the start.
	startProgram(t, "1h", tr.script(`echo ready >&9`), nil, terminal)
	if got := tr.line(t); got != "ready" {
		t.Errorf("got %q", got)
	}
	tr.awaitGone(t)
}
