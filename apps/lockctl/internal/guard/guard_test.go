package guard_test

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fencelock/fencelock/apps/lockctl/internal/guard"
)

const longGrace = 10 * time.Second

func TestTheCommandsCodeIsPassedThrough(t *testing.T) {
	t.Parallel()
	missing := filepath.Join(t.TempDir(), "missing")
	plain := filepath.Join(t.TempDir(), "plain")
	if err := os.WriteFile(plain, []byte("no program"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name    string
		args    []string
		code    int
		started bool
	}{
		{"success", []string{"true"}, 0, true},
		{"its own code", []string{"sh", "-c", "exit 7"}, 7, true},
		{"a signal", []string{"sh", "-c", "kill -9 $$"}, 137, true},
		{"no such command", []string{"no-such-command-anywhere"}, 127, false},
		{"no such file", []string{missing}, 127, false},
		{"not executable", []string{plain}, 126, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			cmd := command(longGrace, "")
			cmd.Args = c.args
			o := await(t, run(cmd, guard.Hold{Left: forever}, nil))
			if o.err != nil || o.Code != c.code || o.Lost || (o.Failure == "") != c.started {
				t.Errorf("got %+v, want code %d, started %v", o, c.code, c.started)
			}
		})
	}
}

func TestStreamsAndEnvironmentArePassedThrough(t *testing.T) {
	t.Parallel()
	in, feed, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	read, out, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer read.Close()
	cmd := command(longGrace, `read word; echo "$word $EXTRA"; ls -l /proc/$$/fd >&2`)
	cmd.Env = append(cmd.Env, "EXTRA=extra")
	cmd.Stdin, cmd.Stdout, cmd.Stderr = in, out, nil
	done := run(cmd, guard.Hold{Left: forever}, nil)
	if _, err := io.WriteString(feed, "hello\n"); err != nil {
		t.Fatal(err)
	}
	feed.Close()
	o := await(t, done)
	out.Close()
	text, err := io.ReadAll(read)
	if err != nil || o.err != nil || string(text) != "hello extra\n" {
		t.Errorf("got %q, %v, %+v", text, err, o)
	}
}

func TestTheCommandInheritsNoDescriptorOfTheGuard(t *testing.T) {
	t.Parallel()
	// An inherited end of a pipe would hide the death of the program or of the guardian.
	cmd := command(longGrace, `test ! -e /proc/self/fd/3 && test ! -e /proc/self/fd/4`)
	if o := await(t, run(cmd, guard.Hold{Left: forever}, nil)); o.err != nil || o.Code != 0 {
		t.Errorf("got %+v", o)
	}
}

func TestNothingStartsWithoutTimeLeft(t *testing.T) {
	t.Parallel()
	ran := filepath.Join(t.TempDir(), "ran")
	for name, left := range map[string]time.Duration{"over": -time.Second, "less than the grace": longGrace / 2} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o := await(t, run(command(longGrace, "touch "+ran), guard.Hold{Left: func() time.Duration { return left }}, nil))
			if o.err != nil || !o.Lost || o.Code != 0 {
				t.Errorf("got %+v, want lost and not even started", o)
			}
			if _, err := os.Stat(ran); err == nil {
				t.Error("the command was started")
			}
		})
	}
}

// stubborn is a script whose processes, a grandchild included, all ignore TERM.
const stubborn = `trap '' TERM
sh -c 'sh -c "echo deep >&9; sleep 1000" & wait' &
echo ready >&9
wait; sleep 1000`

// readStubborn waits until the processes of stubborn are there.
func readStubborn(t *testing.T, tr *trace) {
	t.Helper()
	tr.line(t)
	tr.line(t)
}

func TestOnLossTheWholeGroupIsGoneBeforeRunReturns(t *testing.T) {
	t.Parallel()
	tr := newTrace(t)
	lost := make(chan struct{})
	done := run(command(400*time.Millisecond, tr.script(stubborn)), guard.Hold{Left: forever, Lost: lost}, nil)
	readStubborn(t, tr)
	close(lost)
	o := await(t, done)
	tr.wantGone(t)
	if o.err != nil || !o.Lost || o.Code != 137 {
		t.Errorf("got %+v, want lost, killed", o)
	}
}

func TestOnLossTheCommandMayEndInPeace(t *testing.T) {
	t.Parallel()
	for name, body := range map[string]string{
		"running":   `while :; do sleep 0.05; done`,
		"suspended": `kill -STOP $$; while :; do sleep 0.05; done`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tr := newTrace(t)
			lost := make(chan struct{})
			script := tr.script("trap 'echo tidied >&9; exit 5' TERM; echo ready >&9; " + body)
			done := run(command(patience, script), guard.Hold{Left: forever, Lost: lost}, nil)
			tr.line(t)
			close(lost)
			if got := tr.line(t); got != "tidied" {
				t.Errorf("got %q", got)
			}
			o := await(t, done)
			tr.wantGone(t)
			if o.err != nil || !o.Lost || o.Code != 5 {
				t.Errorf("got %+v, want lost with code 5", o)
			}
		})
	}
}

func TestWithoutRenewalTheGroupIsStopped(t *testing.T) {
	t.Parallel()
	tr := newTrace(t)
	const grace = 400 * time.Millisecond
	var deadline atomic.Pointer[time.Time] // nil while the lock is renewed
	left := func() time.Duration {
		if d := deadline.Load(); d != nil {
			return time.Until(*d)
		}
		return time.Hour
	}
	done := run(command(grace, tr.script(stubborn)), guard.Hold{Left: left}, nil)
	readStubborn(t, tr)
	last := time.Now().Add(2 * grace)
	deadline.Store(&last)
	o := await(t, done)
	tr.wantGone(t)
	if o.err != nil || !o.Lost || o.Code != 137 {
		t.Errorf("got %+v, want lost, killed", o)
	}
}

func TestASignalReachesTheGroupAndTheCommandTakesItsTime(t *testing.T) {
	t.Parallel()
	tr := newTrace(t)
	in, feed, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	defer feed.Close()
	signals := make(chan os.Signal, 1)
	// The grandchild shows that the whole group is meant; the child ends only when it is told to.
	cmd := command(longGrace, tr.script(`
sh -c 'trap "echo grandchild >&9; exit" TERM; echo ready >&9; while :; do sleep 0.05; done' &
trap 'wait; read go; exit 3' TERM
echo ready >&9
while :; do sleep 0.05; done`))
	cmd.Stdin = in
	done := run(cmd, guard.Hold{Left: forever}, signals)
	tr.line(t)
	tr.line(t)
	signals <- unix.SIGTERM
	if got := tr.line(t); got != "grandchild" {
		t.Errorf("got %q", got)
	}
	select {
	case o := <-done:
		t.Fatalf("returned before the command ended: %+v", o)
	default:
	}
	if _, err := io.WriteString(feed, "go\n"); err != nil {
		t.Fatal(err)
	}
	if o := await(t, done); o.err != nil || o.Lost || o.Code != 3 {
		t.Errorf("got %+v, want code 3, not lost", o)
	}
	tr.wantGone(t)
}

func TestWhatTheCommandLeavesBehindIsStopped(t *testing.T) {
	t.Parallel()
	for name, body := range map[string]string{
		"a grandchild that hears TERM":    `sleep 1000 & echo ready >&9; exit 4`,
		"a grandchild that ignores TERM":  `trap '' TERM; sleep 1000 & echo ready >&9; exit 4`,
		"a grandchild that is suspended":  `sh -c 'kill -STOP $$' & echo ready >&9; exit 4`,
		"a whole family that is orphaned": `sh -c 'sh -c "sleep 1000; :" & sleep 1000' & echo ready >&9; exit 4`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tr := newTrace(t)
			done := run(command(400*time.Millisecond, tr.script(body)), guard.Hold{Left: forever}, nil)
			tr.line(t)
			o := await(t, done)
			tr.wantGone(t)
			if o.err != nil || o.Lost || o.Code != 4 {
				t.Errorf("got %+v, want code 4, not lost", o)
			}
		})
	}
}

func TestAProcessThatLeavesTheGroupIsNotFollowed(t *testing.T) {
	t.Parallel()
	tr := newTrace(t)
	in, feed, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	cmd := command(longGrace, tr.script(`setsid sh -c 'echo $$ >&9; exec sleep 1000' & read go; exit 4`))
	cmd.Stdin = in
	done := run(cmd, guard.Hold{Left: forever}, nil)
	pid := tr.pid(t) // it has left the group by now
	feed.Close()
	if o := await(t, done); o.err != nil || o.Code != 4 {
		t.Errorf("got %+v", o)
	}
	if err := unix.Kill(pid, unix.SIGKILL); err != nil {
		t.Errorf("the process that left is gone: %v; then the documentation is wrong", err)
	}
	tr.awaitGone(t)
}

func TestIfTheGuardianIsKilledTheGroupIsKilled(t *testing.T) {
	t.Parallel()
	tr := newTrace(t)
	done := run(command(longGrace, tr.script("echo $PPID >&9\n"+stubborn)), guard.Hold{Left: forever}, nil)
	guardian := tr.pid(t)
	readStubborn(t, tr)
	if err := unix.Kill(guardian, unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	o := await(t, done)
	tr.wantGone(t)
	if !errors.Is(o.err, guard.ErrGuardianDied) {
		t.Errorf("got %+v, want %v", o, guard.ErrGuardianDied)
	}
}

func TestIfTheGuardianIsFrozenTheGroupIsStillKilledOnLoss(t *testing.T) {
	t.Parallel()
	tr := newTrace(t)
	lost := make(chan struct{})
	done := run(command(400*time.Millisecond, tr.script("echo $PPID >&9\n"+stubborn)), guard.Hold{Left: forever, Lost: lost}, nil)
	guardian := tr.pid(t)
	readStubborn(t, tr)
	if err := unix.Kill(guardian, unix.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	close(lost)
	o := await(t, done)
	tr.wantGone(t)
	if !errors.Is(o.err, guard.ErrGuardianDied) || !o.Lost {
		t.Errorf("got %+v, want lost and %v", o, guard.ErrGuardianDied)
	}
}
