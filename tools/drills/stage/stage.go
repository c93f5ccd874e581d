package stage

import (
	"context"
	"fmt"
	"io"
	"os"
	"slices"
	"sync"
)

// Stage is one run. It implements the T of packages drills and testenv; Fatalf must be called by the run's own goroutine.
type Stage struct {
	ctx context.Context //nolint:containedctx // A stage is one run, and T has to hand it out.
	log io.Writer

	mu       sync.Mutex
	cleanups []func()
}

// failure ends a run from any depth; [Run] turns it into an error.
type failure struct{ error }

// Run carries out a run and its clean-up, the latest first. Log lines go to log. It returns the error of the run, or what the run
// failed with.
func Run(ctx context.Context, log io.Writer, run func(*Stage) error) (err error) {
	s := &Stage{ctx: ctx, log: log}
	defer func() {
		r := recover()
		s.clean()
		if f, ok := r.(failure); ok {
			err = f.error
		} else if r != nil {
			panic(r)
		}
	}()
	return run(s)
}

func (s *Stage) clean() {
	s.mu.Lock()
	cleanups := s.cleanups
	s.mu.Unlock()
	for _, cleanup := range slices.Backward(cleanups) {
		cleanup()
	}
}

// Helper does nothing.
func (s *Stage) Helper() {}

// Context ends with the program.
func (s *Stage) Context() context.Context { return s.ctx }

// Cleanup runs f at the end.
func (s *Stage) Cleanup(f func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.cleanups = append(s.cleanups, f)
}

// Logf prints a line.
func (s *Stage) Logf(format string, args ...any) { _, _ = fmt.Fprintf(s.log, format+"\n", args...) }

// Fatalf ends the run with an error.
func (s *Stage) Fatalf(format string, args ...any) { panic(failure{fmt.Errorf(format, args...)}) }

// TempDir makes a folder that goes with the run.
func (s *Stage) TempDir() string {
	dir, err := os.MkdirTemp("", "fencelock-drill-")
	if err != nil {
		s.Fatalf("make folder: %v", err)
	}
	s.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}
