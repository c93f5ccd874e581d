package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"
)

func main() { os.Exit(bench(os.Args[1:])) }

// bench runs the benchmark that the arguments name and returns the exit code.
func bench(args []string) int {
	if len(args) != 1 || args[0] != "wake" {
		fmt.Fprintln(os.Stderr, "usage: bench wake")
		return 2
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, wake); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		return 1
	}
	return 0
}
