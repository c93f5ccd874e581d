package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/fencelock/fencelock/tools/drills"
	"github.com/fencelock/fencelock/tools/drills/demo"
	"github.com/fencelock/fencelock/tools/drills/experiment"
	"github.com/fencelock/fencelock/tools/drills/outage"
	"github.com/fencelock/fencelock/tools/drills/stack"
	"github.com/fencelock/fencelock/tools/drills/stage"
	"github.com/fencelock/fencelock/tools/testenv"
)

// Exit codes.
const (
	exitOK     = 0
	exitFailed = 1
	exitUsage  = 2
)

// settings are what the command line says.
type settings struct {
	command, backend                                string
	accounts, payouts, executors, concurrency, runs int
	outage                                          time.Duration
}

func main() { os.Exit(run(os.Args[1:], os.Stdout, os.Stderr)) }

// run is the program without its process.
func run(args []string, stdout, stderr io.Writer) int {
	set, err := read(args, stderr)
	if err != nil {
		_, _ = fmt.Fprintln(stderr, "drill:", err)
		return exitUsage
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	// The test environment ends what it has started when its runner has run.
	return testenv.Main(runner(func() int {
		sound, err := set.do(ctx, stdout)
		switch {
		case err != nil:
			_, _ = fmt.Fprintln(stderr, "drill:", err)
			return exitFailed
		case !sound:
			return exitFailed
		}
		return exitOK
	})).Run()
}

type runner func() int

// Run implements testenv.Runner.
func (r runner) Run() int { return r() }

// read reads the command line: the command, then flags.
func read(args []string, stderr io.Writer) (settings, error) {
	var s settings
	commands := []string{"demo", "experiment", "outage"}
	if len(args) == 0 || !slices.Contains(commands, args[0]) {
		return s, fmt.Errorf("the first argument must be one of %s", strings.Join(commands, ", "))
	}
	s.command = args[0]
	fs := flag.NewFlagSet("drill "+s.command, flag.ContinueOnError)
	fs.SetOutput(stderr)
	fs.StringVar(&s.backend, "backend", stack.Etcd, "where the locks are kept: etcd, postgres")
	fs.IntVar(&s.accounts, "accounts", 50, "accounts to open (demo, outage)")
	fs.IntVar(&s.payouts, "payouts", 500, "payouts to make (demo, outage)")
	fs.IntVar(&s.executors, "executors", 3, "executors that share the work (demo, outage)")
	fs.IntVar(&s.concurrency, "concurrency", 8, "payouts that an executor works on at a time (demo, outage)")
	fs.IntVar(&s.runs, "runs", 20, "runs of each position (experiment)")
	fs.DurationVar(&s.outage, "for", 30*time.Second, "how long the lock server is away (outage)")
	if err := fs.Parse(args[1:]); err != nil {
		return s, fmt.Errorf("read flags: %w", err)
	}
	switch {
	case fs.NArg() > 0:
		return s, fmt.Errorf("unexpected argument %q", fs.Arg(0))
	case s.backend != stack.Etcd && s.backend != stack.Postgres:
		return s, fmt.Errorf("backend %q is none of etcd, postgres", s.backend)
	case min(s.accounts, s.payouts, s.executors, s.concurrency, s.runs) < 1:
		return s, errors.New("there must be at least one of each")
	}
	return s, nil
}

// do carries out the command and reports whether everything was as it must be.
func (set settings) do(ctx context.Context, w io.Writer) (sound bool, err error) {
	programs, err := drills.NewPrograms()
	if err != nil {
		return false, err
	}
	defer func() { err = errors.Join(err, programs.Close()) }()
	_, _ = fmt.Fprintln(w, "building the programs; the first time takes minutes")
	if err := stage.Run(ctx, w, func(s *stage.Stage) error { stack.Build(s, programs); return nil }); err != nil {
		return false, err
	}
	switch set.command {
	case "demo":
		err = stage.Run(ctx, w, func(s *stage.Stage) error {
			sound, err = set.demo(s, programs, w)
			return err
		})
	case "outage":
		sound, err = set.outages(ctx, programs, w)
	default:
		sound, err = set.experiment(ctx, programs, w)
	}
	return sound && err == nil, err
}

func (set settings) size() demo.Options {
	return demo.Options{
		Backend: set.backend, Accounts: set.accounts, Payouts: set.payouts, Executors: set.executors, Concurrency: set.concurrency,
	}
}

func (set settings) demo(t drills.T, programs *drills.Programs, w io.Writer) (bool, error) {
	r := demo.Run(t, programs, set.size(), w)
	return len(r.Faults()) == 0, r.Print(w)
}

func (set settings) experiment(ctx context.Context, programs *drills.Programs, w io.Writer) (bool, error) {
	report, err := experiment.Make(ctx, programs, set.backend, set.runs, w)
	_, _ = fmt.Fprintf(w, "\nlocks on %s, session TTL %v\n", set.backend, stack.SessionTTL)
	return report.Passed(), errors.Join(err, report.Print(w))
}

// outages makes both kinds of outage, each in a system of its own.
func (set settings) outages(ctx context.Context, programs *drills.Programs, w io.Writer) (bool, error) {
	all := true
	for _, how := range []syscall.Signal{syscall.SIGTERM, syscall.SIGKILL} {
		err := stage.Run(ctx, w, func(s *stage.Stage) error {
			r := outage.Run(s, programs, outage.Options{Size: set.size(), How: how, For: set.outage}, w)
			all = all && len(r.Faults()) == 0
			return r.Print(w)
		})
		if err != nil {
			return false, err
		}
	}
	return all, nil
}
