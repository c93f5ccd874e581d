package guard_test

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"github.com/fencelock/fencelock/apps/lockctl/internal/guard"
)

// The test binary plays three parts: the tests, the guardian, and a program that runs a command
// under the guard, for tests that freeze or kill that program.
const partProgram = "__program"

func TestMain(m *testing.M) {
	if len(os.Args) > 1 {
		switch os.Args[1] {
		case guard.Argument:
			os.Exit(guard.Main(os.Args[2:]))
		case partProgram:
			os.Exit(program(os.Args[2:]))
		}
	}
	heedSignals()
	goleak.VerifyTestMain(m)
}

// heedSignals makes the programs that tests start heed signals which this process was started to
// ignore, as nohup and a shell's background jobs are: a caught signal has its default action again
// in a new program, an ignored one stays ignored.
func heedSignals() {
	for _, s := range []os.Signal{syscall.SIGHUP, syscall.SIGINT, syscall.SIGQUIT} {
		if signal.Ignored(s) {
			signal.Notify(make(chan os.Signal, 1), s)
		}
	}
}

// program runs a shell script for as long as it lives itself: its lock is always good for args[0].
func program(args []string) int {
	left, err := time.ParseDuration(args[0])
	if err != nil {
		return 1
	}
	hold := guard.Hold{Left: func() time.Duration { return left }}
	result, err := guard.Run(command(left/4, args[1]), hold, nil)
	if err != nil {
		return 1
	}
	return result.Code
}

// command is a shell script with the streams of this process.
func command(grace time.Duration, script string) guard.Command {
	return guard.Command{
		Args: []string{"sh", "-c", script}, Env: os.Environ(),
		Stdin: os.Stdin, Stdout: os.Stdout, Stderr: os.Stderr, Grace: grace,
	}
}

// patience is far beyond what any step of a test takes on a busy machine.
const patience = time.Minute

// forever is a lock that is never lost.
func forever() time.Duration { return time.Hour }

// trace is a named pipe that a script and all its descendants hold open for writing as descriptor 9: what they
// write is news, and its end proves that none of them is left.
type trace struct {
	path   string
	file   *os.File
	reader *bufio.Reader
}

func newTrace(t *testing.T) *trace {
	t.Helper()
	path := filepath.Join(t.TempDir(), "trace")
	if err := unix.Mkfifo(path, 0o600); err != nil {
		t.Fatal(err)
	}
	return &trace{path: path}
}

// script returns body as a script that holds the trace open.
func (tr *trace) script(body string) string {
	return fmt.Sprintf("exec 9>%s\n%s", tr.path, body)
}

// line returns the next line of the script, waiting for it to start if need be.
func (tr *trace) line(t *testing.T) string {
	t.Helper()
	if tr.file == nil {
		file, err := os.Open(tr.path) // returns when the script has opened its end
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { file.Close() })
		if err := file.SetReadDeadline(time.Now().Add(patience)); err != nil {
			t.Fatal(err)
		}
		tr.file, tr.reader = file, bufio.NewReader(file)
	}
	line, err := tr.reader.ReadString('\n')
	if err != nil {
		t.Fatalf("read trace: %v", err)
	}
	return strings.TrimSpace(line)
}

// pid returns the next line as a process id.
func (tr *trace) pid(t *testing.T) int {
	t.Helper()
	pid, err := strconv.Atoi(tr.line(t))
	if err != nil {
		t.Fatal(err)
	}
	return pid
}

// wantGone fails unless no process holds the trace open at this very moment.
func (tr *trace) wantGone(t *testing.T) {
	t.Helper()
	connection, err := tr.file.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	var n int
	var failure error
	err = connection.Control(func(fd uintptr) {
		for buffer := make([]byte, 512); ; {
			if n, failure = unix.Read(int(fd), buffer); n <= 0 {
				return
			}
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	if errors.Is(failure, unix.EAGAIN) {
		t.Error("a process of the group is still alive")
	} else if failure != nil {
		t.Fatal(failure)
	}
}

// awaitGone waits until no process holds the trace open.
func (tr *trace) awaitGone(t *testing.T) {
	t.Helper()
	for {
		if _, err := tr.reader.ReadString('\n'); err != nil {
			if errors.Is(err, os.ErrDeadlineExceeded) {
				t.Fatal("a process of the group is still alive")
			}
			return
		}
	}
}

// outcome is what guard.Run returned.
type outcome struct {
	guard.Result
	err error
}

// run runs a script under the guard in the background.
func run(c guard.Command, hold guard.Hold, signals <-chan os.Signal) <-chan outcome {
	done := make(chan outcome, 1)
	go func() {
		result, err := guard.Run(c, hold, signals)
		done <- outcome{result, err}
	}()
	return done
}

// await returns what Run returned.
func await(t *testing.T, done <-chan outcome) outcome {
	t.Helper()
	select {
	case o := <-done:
		return o
	case <-time.After(patience):
		t.Fatal("the guard did not return")
		return outcome{}
	}
}
