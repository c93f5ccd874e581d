package client_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/fencelock/fencelock/adapters/client"
	"github.com/fencelock/fencelock/core/lock"
)

func Example() {
	c, err := client.New([]string{"http://127.0.0.1:8470"})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer c.Close()
	err = c.Do(context.Background(), "payout:4711", func(ctx context.Context, token lock.Token) error {
		// Work with ctx, and present the token with every write.
		return nil
	}, client.WithWait(5*time.Second))
	switch {
	case errors.Is(err, lock.ErrHeld):
		// Somebody else is at it.
	case errors.Is(err, lock.ErrLost):
		// The lock was lost before the function returned.
	}
}

func ExampleNew() {
	_, err := client.New([]string{"ftp://example.org"})
	fmt.Println(errors.Is(err, lock.ErrInvalid), err)
	// Output: true endpoints: must be http://host:port or https://host:port
}

func ExampleSession_Acquire() {
	run := func(ctx context.Context, s *client.Session) error {
		l, err := s.Acquire(ctx, "payout:4711", client.WithWait(5*time.Second), client.WithLease(time.Minute))
		if held, ok := errors.AsType[*client.HeldError](err); ok {
			return fmt.Errorf("try again later, %s is at it", held.Owner)
		}
		if err != nil {
			return err
		}
		// Release even if ctx has ended by then.
		defer l.Release(context.WithoutCancel(ctx))
		select {
		case <-l.Context().Done():
			return context.Cause(l.Context())
		default:
			return l.CheckStillHeld()
		}
	}
	_ = run
}
