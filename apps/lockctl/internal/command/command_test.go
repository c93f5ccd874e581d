package command_test

import (
	"flag"
	"os"
	"os/signal"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"go.uber.org/goleak"

	"github.com/fencelock/fencelock/apps/lockctl/internal/command"
	"github.com/fencelock/fencelock/apps/lockctl/internal/guard"
)

var update = flag.Bool("update", false, "rewrite the golden files")

func TestMain(m *testing.M) {
	if len(os.Args) > 1 {
		switch os.Args[1] {
		case guard.Argument:
			os.Exit(guard.Main(os.Args[2:]))
		case partLockctl:
			os.Exit(lockctl(os.Args[2:]))
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

// outcome is what one call of lockctl did.
type outcome struct {
	code        int
	out, errors string
}

// streams returns standard streams that are files, and a function that reads what was written.
func streams(t *testing.T) (command.Streams, func() (out, errors string)) {
	t.Helper()
	dir := t.TempDir()
	open := func(name string) *os.File {
		f, err := os.OpenFile(filepath.Join(dir, name), os.O_RDWR|os.O_CREATE|os.O_APPEND, 0o600)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { f.Close() })
		return f
	}
	s := command.Streams{In: open("in"), Out: open("out"), Err: open("err")}
	read := func(name string) string {
		text, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	return s, func() (string, string) { return read("out"), read("err") }
}

// environ is the environment of a call.
func environ(pairs ...string) func(string) string {
	return func(name string) string {
		for i := 0; i < len(pairs); i += 2 {
			if pairs[i] == name {
				return pairs[i+1]
			}
		}
		return ""
	}
}

// call runs lockctl in this process.
func call(t *testing.T, env func(string) string, args ...string) outcome {
	t.Helper()
	s, read := streams(t)
	code := command.MainAt(t.Context(), args, env, s, moment.AsTime())
	out, errors := read()
	return outcome{code, out, errors}
}

// golden compares text with a golden file.
func golden(t *testing.T, name, text string) {
	t.Helper()
	path := filepath.Join("testdata", name+".txt")
	if *update {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if text != string(want) {
		t.Errorf("%s: got\n%s\nwant\n%s", path, text, want)
	}
}

// random matches the request ids that acquire draws.
var random = regexp.MustCompile(`[A-Z2-7]{26}`)

func TestOutput(t *testing.T) {
	t.Parallel()
	env := environ("USER", "olga", "FENCELOCK_SESSION", testSession)
	for _, c := range []struct {
		name string
		line string
		code int
	}{
		{"acquire", "acquire --key demo --wait 2s", 0},
		{"release", "release --key demo --token 7", 0},
		{"extend", "extend --key demo --token 7 --lease 30s", 0},
		{"inspect-held", "inspect --key demo", 0},
		{"inspect-free", "inspect --key free", 0},
		{"list", "list", 0},
		{"list-limited", "list --limit 3", 0},
		{"watch", "watch --key demo", 204},
		{"session-open", "session open --owner ann --ttl 15s", 0},
		{"session-heartbeat", "session heartbeat", 0},
		{"session-close", "session close", 0},
		{"session-list", "session list", 0},
		{"revoke", "revoke --key demo --reason stuck-since-noon", 0},
		{"revocations", "revocations", 0},
		{"floor-raise", "floor raise --above 9007199254740993 --reason restored-a-copy", 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			var text strings.Builder
			for _, more := range []string{"", " --json"} {
				server := newFake().serve(t)
				o := call(t, env, strings.Fields(c.line+more+" --server "+server)...)
				if o.code != c.code {
					t.Errorf("%s%s: exit code %d, want %d; %s", c.line, more, o.code, c.code, o.errors)
				}
				text.WriteString("$ lockctl " + c.line + more + "\n" + random.ReplaceAllString(o.out, "RANDOM") + o.errors + "\n")
			}
			golden(t, c.name, text.String())
		})
	}
}

func TestHeldIsAnOutcomeWithItsOwnExitCode(t *testing.T) {
	t.Parallel()
	f := newFake()
	f.held = true
	server := f.serve(t)
	for _, line := range []string{"acquire --key demo", "acquire --key demo --json"} {
		o := call(t, environ("FENCELOCK_SESSION", testSession), strings.Fields(line+" --server "+server)...)
		if o.code != 201 || o.errors != "" || !strings.Contains(o.out, "9007199254740993") || !strings.Contains(o.out, "bob@site") {
			t.Errorf("%s: got %+v", line, o)
		}
	}
}

func TestHelp(t *testing.T) {
	t.Parallel()
	secret := strings.Repeat("5ec2e7", 5)
	for _, line := range []string{"--help", "run --help", "acquire --help"} {
		o := call(t, environ("USER", "olga", "FENCELOCK_SESSION", secret), strings.Fields(line+" ")...)
		if o.code != 0 || o.errors != "" || strings.Contains(o.out, secret) {
			t.Errorf("%s: %+v", line, o)
		}
		if line != "acquire --help" && !strings.Contains(o.out, "200  the lock or the session is over") {
			t.Errorf("%s does not document the exit codes", line)
		}
	}
}

func TestCompletion(t *testing.T) {
	t.Parallel()
	for _, shell := range []string{"bash", "zsh", "fish"} {
		if o := call(t, environ(), "completion", shell); o.code != 0 || !strings.Contains(o.out, "lockctl") {
			t.Errorf("%s: code %d, %s", shell, o.code, o.errors)
		}
	}
}

func TestVersion(t *testing.T) {
	t.Parallel()
	if o := call(t, environ(), "version"); o.code != 0 || !strings.HasPrefix(o.out, "lockctl ") {
		t.Errorf("got %+v", o)
	}
	if o := call(t, environ(), "version", "--json"); o.code != 0 || !strings.HasPrefix(o.out, `{"version":`) {
		t.Errorf("got %+v", o)
	}
}
