package client_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/fencelock/fencelock/adapters/client"
	"github.com/fencelock/fencelock/adapters/rpc"
	"github.com/fencelock/fencelock/contracts/parity/reference"
	"github.com/fencelock/fencelock/core/lock"
)

// exampleClient is a client of a server that the example starts.
func exampleClient() (c *client.Client, stop func()) {
	world := reference.New()
	address, _, stopServer, err := serve(context.Background(), world, func(*rpc.Config) {})
	if err != nil {
		panic(err)
	}
	c, err = client.New([]string{address})
	if err != nil {
		panic(err)
	}
	return c, func() {
		_ = c.Close()
		stopServer()
		world.Close()
	}
}

func Example() {
	c, stop := exampleClient() // client.New([]string{"http://127.0.0.1:8470"})
	defer stop()
	err := c.Do(context.Background(), "payout:4711", func(_ context.Context, token lock.Token) error {
		fmt.Println("working under token", token) // present it with every write
		return nil
	}, client.WithWait(5*time.Second))
	switch {
	case errors.Is(err, lock.ErrHeld):
		fmt.Println("somebody else is at it")
	case errors.Is(err, lock.ErrLost):
		fmt.Println("the lock was lost before the function returned")
	}
	// Output: working under token 1
}

func ExampleNew() {
	_, err := client.New([]string{"ftp://example.org"})
	fmt.Println(errors.Is(err, lock.ErrInvalid), err)
	// Output: true endpoints: must be http://host:port or https://host:port
}

func ExampleSession_Acquire() {
	c, stop := exampleClient()
	defer stop()
	ctx := context.Background()
	s, err := c.OpenSession(ctx, "worker-1")
	if err != nil {
		fmt.Println(err)
		return
	}
	l, err := s.Acquire(ctx, "payout:4711", client.WithWait(5*time.Second), client.WithLease(time.Minute))
	if err != nil {
		fmt.Println(err)
		return
	}
	_, err = s.TryAcquire(ctx, "payout:4711") // a session does not re-enter
	if held, ok := errors.AsType[*client.HeldError](err); ok {
		fmt.Println("held by", held.Owner)
	}
	fmt.Println("still held:", l.CheckStillHeld() == nil)
	outcome, err := l.Release(context.WithoutCancel(ctx)) // also if ctx has ended by then
	fmt.Println(outcome, err)
	_, err = s.Close(ctx)
	fmt.Println(err)
	// Output:
	// held by worker-1
	// still held: true
	// released <nil>
	// <nil>
}
