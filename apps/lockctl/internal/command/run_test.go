package command_test

import (
	"bufio"
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/fencelock/fencelock/apps/lockctl/internal/command"
	"github.com/fencelock/fencelock/core/lock"
)

// played is a lock that lives as the test wants, and notes its release.
type played struct {
	lost     chan struct{}
	cause    error
	err      error // of the acquire
	options  command.RunOptions
	released int
	signed   string
	// left is an hour where it is nil.
	left func() time.Duration
}

func (l *played) acquire(_ context.Context, o command.RunOptions) (command.FakeLock, error) {
	l.options = o
	if l.err != nil {
		return command.FakeLock{}, l.err
	}
	key, err := lock.NewKey(o.Namespace, o.Key)
	return command.FakeLock{
		Key: key, Token: lock.Token(big), Signed: l.signed, Lost: l.lost,
		Left:        l.timeLeft,
		SessionLeft: func() time.Duration { return time.Hour },
		Cause:       func() error { return l.cause },
		Release: func(context.Context) error {
			l.released++
			return nil
		},
	}, err
}

func (l *played) timeLeft() time.Duration {
	if l.left == nil {
		return time.Hour
	}
	return l.left()
}

// run runs lockctl run under a played lock.
func run(t *testing.T, l *played, args ...string) outcome {
	t.Helper()
	s, read := streams(t)
	code := command.MainWithLock(t.Context(), append([]string{"run"}, args...), environ("USER", "olga"), s, l.acquire)
	out, errors := read()
	return outcome{code, out, errors}
}

func TestRunTellsTheCommandItsTokenAndPassesItsCode(t *testing.T) {
	t.Parallel()
	l := &played{}
	o := run(t, l, "--key", "a/b", "--namespace", "team", "--",
		"sh", "-c", `echo $FENCELOCK_TOKEN $FENCELOCK_KEY $FENCELOCK_NAMESPACE "${FENCELOCK_SIGNED_TOKEN-not set}."; echo problem >&2; exit 9`)
	if o.code != 9 || o.out != "9007199254740993 a/b team .\n" || o.errors != "problem\n" || l.released != 1 {
		t.Errorf("got %+v, released %d times", o, l.released)
	}
}

func TestRunTellsTheCommandItsSignedToken(t *testing.T) {
	t.Parallel()
	if o := run(t, &played{signed: "7.signed"}, "--key", "k", "--", "sh", "-c", `echo $FENCELOCK_SIGNED_TOKEN`); o.out != "7.signed\n" {
		t.Errorf("got %+v", o)
	}
}

func TestRunAsksForWhatItsFlagsSay(t *testing.T) {
	t.Parallel()
	l := &played{}
	o := run(t, l, "--key", "k", "--wait", "3s", "--ttl", "4s", "--lease", "5s", "--owner", "me",
		"--server", "http://a:1,http://b:2", "true", "--key", "its-own")
	got := l.options
	if o.code != 0 || got.Key != "k" || got.Wait != 3*time.Second || got.Owner != "me" || len(got.Servers) != 2 ||
		got.TTL == nil || *got.TTL != 4*time.Second || got.Lease == nil || *got.Lease != 5*time.Second {
		t.Errorf("got %+v, asked %+v", o, got)
	}
	if run(t, l, "--key", "k", "true"); l.options.TTL != nil || l.options.Lease != nil {
		t.Errorf("asked for a time to live or lease that nobody named: %+v", l.options)
	}
}

func TestRunWithoutTheLockRunsNothing(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		err  error
		code int
	}{
		{lock.ErrHeld, 201},
		{lock.ErrContention, 202},
		{lock.ErrTooManyWaiters, 202},
		{lock.ErrSessionDead, 200},
		{lock.ErrDenied, 204},
		{lock.ErrUnsafeStore, 204},
		{lock.Invalid("key", "must not be empty"), 203},
		{errors.New("something else"), 206},
	} {
		t.Run(c.err.Error(), func(t *testing.T) {
			t.Parallel()
			o := run(t, &played{err: c.err}, "--key", "k", "--", "echo", "ran")
			if o.code != c.code || o.out != "" || strings.Count(o.errors, "\n") != 1 {
				t.Errorf("got %+v, want code %d", o, c.code)
			}
		})
	}
}

func TestRunWhereTheCommandDoesNotStart(t *testing.T) {
	t.Parallel()
	l := &played{}
	o := run(t, l, "--key", "k", "--", "no-such-command-anywhere")
	if o.code != 127 || !strings.Contains(o.errors, "no-such-command-anywhere") || l.released != 1 {
		t.Errorf("got %+v, released %d times", o, l.released)
	}
}

func TestRunSaysThatTheLockWasLost(t *testing.T) {
	t.Parallel()
	for name, cause := range map[string]error{
		"revoked": &lock.Error{Code: lock.CodeLost, Message: "revoked"},
		"no word": nil,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := &played{lost: make(chan struct{}), cause: cause}
			close(l.lost)
			o := run(t, l, "--key", "k", "--", "sleep", "1000")
			if o.code != 200 || !strings.HasPrefix(o.errors, "lockctl: LOCK_LOST: ") || l.released != 1 {
				t.Errorf("got %+v, released %d times", o, l.released)
			}
		})
	}
}

func TestRunSaysThatTheLeaseEnded(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ flags, want string }{
		"own":      {"--lease 3s", "its --lease of 3s ended"},
		"server's": {"", "the lease that the server gave ended"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			start := time.Now()
			l := &played{left: func() time.Duration { return 400*time.Millisecond - time.Since(start) }}
			o := run(t, l, strings.Fields("--key k "+c.flags+" -- sleep 1000")...)
			if o.code != 200 || !strings.Contains(o.errors, c.want) || l.released != 1 {
				t.Errorf("got %+v, want %q, released %d times", o, c.want, l.released)
			}
		})
	}
}

func TestALossThatTheCommandOutranIsStillALoss(t *testing.T) {
	t.Parallel()
	l := &played{cause: lock.ErrLost}
	if o := run(t, l, "--key", "k", "--", "true"); o.code != 200 {
		t.Errorf("got %+v", o)
	}
}

// partLockctl makes the test binary a lockctl whose lock is played: it says on standard error when it waits,
// and when the lock is given back.
const partLockctl = "__lockctl"

func lockctl(args []string) int {
	acquire := func(ctx context.Context, o command.RunOptions) (command.FakeLock, error) {
		if o.Wait > 0 {
			io.WriteString(os.Stderr, "waiting\n")
			<-ctx.Done()
			return command.FakeLock{}, lock.Contention("the call was given up", false, ctx.Err())
		}
		key, err := lock.NewKey("", o.Key)
		return command.FakeLock{
			Key: key, Token: 1,
			Left:  func() time.Duration { return time.Hour },
			Cause: func() error { return nil },
			Release: func(context.Context) error {
				_, err := io.WriteString(os.Stderr, "released\n")
				return err
			},
		}, err
	}
	return command.MainWithLock(context.Background(), args, os.Getenv,
		command.Streams{In: os.Stdin, Out: os.Stdout, Err: os.Stderr}, acquire)
}

// startLockctl starts such a process and returns its error lines.
func startLockctl(t *testing.T, stdin io.Reader, args ...string) (*exec.Cmd, *bufio.Reader) {
	t.Helper()
	p := exec.Command(os.Args[0], append([]string{partLockctl}, args...)...)
	p.Stdin = stdin
	errors, err := p.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.Process.Kill() })
	return p, bufio.NewReader(errors)
}

// wantLine reads on until the wanted line. What it skips (a shell remarks that its sleep was
// killed) is gone: a line that came too early is missed later.
func wantLine(t *testing.T, r *bufio.Reader, want string) {
	t.Helper()
	for {
		got, err := r.ReadString('\n')
		if err != nil {
			t.Fatalf("%v, want %q", err, want)
		}
		if strings.TrimSpace(got) == want {
			return
		}
	}
}

func TestOnASignalRunReleasesOnlyAfterTheCommandHasEnded(t *testing.T) {
	t.Parallel()
	for _, s := range []syscall.Signal{syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP, syscall.SIGUSR1} {
		t.Run(s.String(), func(t *testing.T) {
			t.Parallel()
			in, feed, err := os.Pipe()
			if err != nil {
				t.Fatal(err)
			}
			defer in.Close()
			p, lines := startLockctl(t, in, "run", "--key", "k", "--", "sh", "-c",
				`trap 'echo told >&2; read go; echo ended >&2; exit 6' TERM INT HUP USR1; echo ready >&2; while :; do sleep 0.05; done`)
			wantLine(t, lines, "ready")
			if err := p.Process.Signal(s); err != nil {
				t.Fatal(err)
			}
			wantLine(t, lines, "told")
			feed.Close() // only now the command may end
			wantLine(t, lines, "ended")
			wantLine(t, lines, "released")
			if err := p.Wait(); p.ProcessState.ExitCode() != 6 {
				t.Errorf("got %v", err)
			}
		})
	}
}

func TestASignalWhileWaitingGivesUp(t *testing.T) {
	t.Parallel()
	p, lines := startLockctl(t, nil, "run", "--key", "k", "--wait", "1h", "--", "echo", "ran")
	wantLine(t, lines, "waiting")
	if err := p.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	rest, err := io.ReadAll(lines)
	if err != nil || !strings.HasPrefix(string(rest), "lockctl: INTERRUPTED: ") {
		t.Errorf("got %q, %v", rest, err)
	}
	if err := p.Wait(); p.ProcessState.ExitCode() != 128+int(syscall.SIGTERM) {
		t.Errorf("got %v", err)
	}
}

func TestAnIgnoredSignalStaysIgnored(t *testing.T) {
	t.Parallel()
	// As nohup does it. The second signal is passed on, and shows that the first was not.
	shell := exec.Command("sh", "-c", `trap '' HUP; exec "$@"`, "sh", os.Args[0], partLockctl,
		"run", "--key", "k", "--", "sh", "-c", `trap "exit 3" USR1
lockctl=$(cut -d " " -f 4 /proc/$PPID/stat); kill -HUP $lockctl; kill -USR1 $lockctl; while :; do sleep 0.05; done`)
	out, err := shell.CombinedOutput()
	if shell.ProcessState.ExitCode() != 3 || !strings.HasSuffix(string(out), "released\n") {
		t.Errorf("got %v, %q", err, out)
	}
}
