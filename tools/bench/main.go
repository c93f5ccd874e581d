package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"

	"github.com/fencelock/fencelock/tools/drills"
	"github.com/fencelock/fencelock/tools/drills/stage"
	"github.com/fencelock/fencelock/tools/testenv"
)

// benchmark measures lock servers over one store and prints what it saw.
type benchmark func(s *stage.Stage, programs *drills.Programs, store drills.Store, backend string) error

// backend is where the locks of a run are kept.
type backend struct {
	name string
	make func(drills.T) drills.Store
}

// The test environment ends what it has started when its runner has run.
func main() { os.Exit(testenv.Main(runner(os.Args[1:])).Run()) }

// runner is the program with its arguments.
type runner []string

// Run implements testenv.Runner.
func (r runner) Run() int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	return bench(ctx, r, os.Stderr)
}

// bench runs the benchmark that the arguments name and returns the exit code.
func bench(ctx context.Context, args []string, stderr io.Writer) int {
	measure, backends, err := read(args, stderr)
	if err != nil {
		_, _ = fmt.Fprintln(stderr, "bench:", err)
		return 2
	}
	programs, err := drills.NewPrograms()
	if err != nil {
		_, _ = fmt.Fprintln(stderr, "bench:", err)
		return 1
	}
	for _, b := range backends {
		err = errors.Join(err, stage.Run(ctx, stderr, func(s *stage.Stage) error { return measure(s, programs, b.make(s), b.name) }))
	}
	if err = errors.Join(err, programs.Close()); err != nil {
		_, _ = fmt.Fprintln(stderr, "bench:", err)
		return 1
	}
	return 0
}

// read reads the command line: the benchmark, then flags.
func read(args []string, stderr io.Writer) (benchmark, []backend, error) {
	all := map[string]benchmark{"wake": wake, "grants": grants}
	backends := []backend{{"etcd", drills.Etcd}, {"postgres", drills.Postgres}}
	if len(args) == 0 || all[args[0]] == nil {
		return nil, nil, fmt.Errorf("the first argument must be one of %s", strings.Join(slices.Sorted(maps.Keys(all)), ", "))
	}
	fs := flag.NewFlagSet("bench "+args[0], flag.ContinueOnError)
	fs.SetOutput(stderr)
	only := fs.String("backend", "", "where the locks are kept: etcd, postgres; both if it is empty")
	if err := fs.Parse(args[1:]); err != nil {
		return nil, nil, fmt.Errorf("read flags: %w", err)
	}
	if fs.NArg() > 0 {
		return nil, nil, fmt.Errorf("unexpected argument %q", fs.Arg(0))
	}
	if *only != "" {
		backends = slices.DeleteFunc(backends, func(b backend) bool { return b.name != *only })
	}
	if len(backends) == 0 {
		return nil, nil, fmt.Errorf("backend %q is none of etcd, postgres", *only)
	}
	return all[args[0]], backends, nil
}
