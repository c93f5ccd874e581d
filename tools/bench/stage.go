package main

import (
	"context"
	"fmt"
	"os"
	"slices"
)

// stage gives a benchmark what a test would give it: it implements the T of drills and testenv.
type stage struct {
	ctx      context.Context //nolint:containedctx // A stage is one run, and T has to hand it out.
	cleanups []func()
}

// failure ends a benchmark from any depth; run turns it into an error.
type failure struct{ error }

// run carries out a benchmark and its clean-up, the latest first.
func run(ctx context.Context, bench func(*stage) error) (err error) {
	s := &stage{ctx: ctx}
	defer func() {
		for _, cleanup := range slices.Backward(s.cleanups) {
			cleanup()
		}
		if r := recover(); r != nil {
			f, ok := r.(failure)
			if !ok {
				panic(r)
			}
			err = f.error
		}
	}()
	return bench(s)
}

func (s *stage) Helper()                         {}
func (s *stage) Context() context.Context        { return s.ctx }
func (s *stage) Cleanup(f func())                { s.cleanups = append(s.cleanups, f) }
func (s *stage) Logf(format string, args ...any) { fmt.Fprintf(os.Stderr, format+"\n", args...) }
func (s *stage) Fatalf(format string, args ...any) {
	panic(failure{fmt.Errorf(format, args...)})
}

func (s *stage) TempDir() string {
	dir, err := os.MkdirTemp("", "fencelock-bench-")
	if err != nil {
		s.Fatalf("make folder: %v", err)
	}
	s.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}
