package program_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/spf13/pflag"
	"go.uber.org/fx"
	"go.uber.org/goleak"

	"github.com/fencelock/fencelock/apps/program"
	"github.com/fencelock/fencelock/apps/program/logging"
	"github.com/fencelock/fencelock/apps/program/settings"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// config is the configuration of a kettle, which is a payment as far as its keys go.
type config struct {
	Owner string
	Log   logging.Config
}

func keys(c *config) *pflag.FlagSet {
	fs := pflag.NewFlagSet("kettle", pflag.ContinueOnError)
	fs.SortFlags = false
	fs.StringVar(&c.Owner, "payment.owner", "me", "who owns it")
	c.Log.Declare(fs)
	return fs
}

func (c config) Print(w io.Writer) error { return settings.Print(w, settings.Bound(&c, keys), nil) }

func (c config) Logger(w io.Writer) *slog.Logger { return c.Log.Logger(w) }

func loaded(args, env []string) (config, error) {
	var c config
	err := settings.Load(keys(&c), args, env, func() error { return c.Log.Check() })
	return c, err
}

// kettle is a program that serves with hooks.
func kettle(hooks fx.Hook) program.Program[config] {
	return program.Program[config]{
		Name:  "kettle",
		Load:  loaded,
		Usage: func() string { return keys(new(config)).FlagUsages() },
		Graph: func(_ context.Context, cfg config, logger *slog.Logger) fx.Option {
			logger.Info("boiling")
			return fx.Options(
				fx.Provide(func() program.Ready { return func() string { return "tea for " + cfg.Owner } }),
				fx.Invoke(func(lc fx.Lifecycle) { lc.Append(hooks) }),
			)
		},
		Commands: []program.Command[config]{{
			Name: "descale",
			Check: func(c config) error {
				if c.Owner == "nobody" {
					return errors.New("it has no owner")
				}
				return nil
			},
			Run: func(ctx context.Context, c config) (string, error) {
				if c.Owner == "slow" {
					<-ctx.Done()
					return "", errors.New("cut\nshort")
				}
				return "as new", nil
			},
		}},
	}
}

func run(p program.Program[config], signals <-chan os.Signal, args ...string) (code int, out, errs string) {
	var stdout, stderr bytes.Buffer
	code = p.Run(args, nil, &stdout, &stderr, signals)
	return code, stdout.String(), stderr.String()
}

func TestCommands(t *testing.T) {
	t.Parallel()
	none, term := make(chan os.Signal), make(chan os.Signal, 1)
	term <- syscall.SIGTERM
	for name, test := range map[string]struct {
		args      []string
		code      int
		out, errs string
	}{
		"version":                {args: []string{"version"}, out: program.Version() + "\n"},
		"version as a flag":      {args: []string{"--version"}, out: program.Version() + "\n"},
		"help":                   {args: []string{"--help"}, out: "Usage: kettle [serve|config|descale|version] [--config FILE]"},
		"config":                 {args: []string{"config", "--payment.owner=you"}, out: "payment.owner: \"you\"\n"},
		"further command":        {args: []string{"descale"}, out: "kettle: as new\n"},
		"command that may not":   {args: []string{"descale", "--payment.owner=nobody"}, code: program.ExitConfig, errs: "kettle: descale: it has no owner\n"},
		"command that is ended":  {args: []string{"descale", "--payment.owner=slow"}, code: program.ExitFailed, errs: "kettle: cut short\n"},
		"unknown command":        {args: []string{"fly"}, code: program.ExitConfig, errs: "kettle: unknown command \"fly\"; there are serve, config, descale and version\n"},
		"command behind a flag":  {args: []string{"--log.level=info", "config"}, code: program.ExitConfig, errs: "kettle: the command config must stand before all flags: kettle config [--KEY=VALUE ...]\n"},
		"argument behind a flag": {args: []string{"--log.level=info", "cold"}, code: program.ExitConfig, errs: "kettle: unexpected argument \"cold\"\n"},
		"bad configuration":      {args: []string{"--log.level=loud"}, code: program.ExitConfig, errs: "kettle: log.level: \"loud\" is none of debug, info, warn, error\n"},
	} {
		signals := none
		if slices.Contains(test.args, "--payment.owner=slow") {
			signals = term
		}
		code, out, errs := run(kettle(fx.Hook{}), signals, test.args...)
		if code != test.code || !strings.HasPrefix(out, test.out) || errs != test.errs {
			t.Errorf("%s: code %d, it says %q and %q", name, code, out, errs)
		}
	}
}

// TestACommandMayReadItsOwnArguments: it decides about output and exit code, and a signal ends its context.
func TestACommandMayReadItsOwnArguments(t *testing.T) {
	t.Parallel()
	p := kettle(fx.Hook{})
	p.Commands = append(p.Commands, program.Command[config]{
		Name: "brew",
		Main: func(ctx context.Context, args, env []string, stdout, stderr io.Writer) int {
			_, _ = io.WriteString(stdout, strings.Join(args, " "))
			_, _ = io.WriteString(stderr, strings.Join(env, " "))
			<-ctx.Done()
			return 42
		},
	})
	signals := make(chan os.Signal, 1)
	signals <- syscall.SIGTERM
	code, out, errs := run(p, signals, "brew", "--strong", "green")
	if code != 42 || out != "--strong green" || errs != "" {
		t.Errorf("code %d, it says %q and %q", code, out, errs)
	}
}

func TestASignalDrains(t *testing.T) {
	t.Parallel()
	signals, stopped := make(chan os.Signal), false
	hooks := fx.Hook{
		OnStart: func(context.Context) error {
			go func() { signals <- syscall.SIGTERM }()
			return nil
		},
		OnStop: func(context.Context) error {
			stopped = true
			return nil
		},
	}
	code, out, errs := run(kettle(hooks), signals, "serve", "--payment.owner=you")
	if code != program.ExitOK || out != "kettle ready: tea for you\n" || !stopped || !strings.Contains(errs, `"msg":"boiling"`) {
		t.Errorf("code %d, stopped %t, it says %q and %q", code, stopped, out, errs)
	}
}

func TestASecondSignalEndsADrain(t *testing.T) {
	t.Parallel()
	signals, ended := make(chan os.Signal), make(chan struct{})
	hooks := fx.Hook{
		OnStart: func(context.Context) error {
			go func() { signals <- syscall.SIGTERM }()
			return nil
		},
		OnStop: func(ctx context.Context) error {
			defer close(ended)
			signals <- os.Interrupt
			<-ctx.Done() // it ends with the program
			return nil
		},
	}
	if code, _, _ := run(kettle(hooks), signals); code != program.ExitFailed {
		t.Errorf("code %d, want %d", code, program.ExitFailed)
	}
	<-ended
}

func TestAStartThatFailsIsOneLine(t *testing.T) {
	t.Parallel()
	code, out, errs := run(kettle(fx.Hook{OnStart: func(context.Context) error { return errors.New("no\nwater") }}), nil, "--log.level=error")
	if code != program.ExitFailed || out != "" || errs != "kettle: no water\n" {
		t.Errorf("code %d, it says %q and %q", code, out, errs)
	}
}

func TestAStopThatFailsIsAFailure(t *testing.T) {
	t.Parallel()
	signals := make(chan os.Signal, 1)
	signals <- syscall.SIGTERM
	if code, _, _ := run(kettle(fx.Hook{OnStop: func(context.Context) error { return errors.New("stuck") }}), signals); code != program.ExitFailed {
		t.Errorf("code %d, want %d", code, program.ExitFailed)
	}
}

// TestASignalIsHeardOnce: the graph hears the signals of the operating system too, and may be the first to tell. That is not a second signal,
// which would cut the drain short.
func TestASignalIsHeardOnce(t *testing.T) {
	t.Parallel()
	signals, ready, draining, drained := make(chan os.Signal), make(line, 1), make(chan struct{}), make(chan struct{})
	p := kettle(fx.Hook{OnStop: func(context.Context) error {
		close(draining)
		<-drained
		return nil
	}})
	code := make(chan int, 1)
	go func() { code <- p.Run(nil, nil, ready, io.Discard, signals) }()
	<-ready
	alive := make(chan os.Signal, 1)
	signal.Notify(alive, syscall.SIGTERM) // as a main does
	defer signal.Stop(alive)
	if err := syscall.Kill(os.Getpid(), syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	select {
	case <-draining: // upon what the graph has heard
	case <-time.After(100 * time.Millisecond):
	}
	signals <- syscall.SIGTERM
	close(drained)
	if got := <-code; got != program.ExitOK {
		t.Errorf("exit code %d after one signal", got)
	}
}

// line tells when something is written.
type line chan struct{}

func (l line) Write(b []byte) (int, error) {
	l <- struct{}{}
	return len(b), nil
}
