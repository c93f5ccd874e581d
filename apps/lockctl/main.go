// Lockctl is the command line of the lock service: it runs programs under fenced locks, and
// inspects and administers locks, sessions and servers.
package main

import (
	"context"
	"os"

	"github.com/fencelock/fencelock/apps/lockctl/internal/command"
)

func main() {
	os.Exit(command.Main(context.Background(), os.Args[1:], os.Getenv, command.Streams{
		In: os.Stdin, Out: os.Stdout, Err: os.Stderr,
	}))
}
