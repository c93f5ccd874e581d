package command

import (
	"context"
	"time"

	"github.com/fencelock/fencelock/core/lock"
)

// FakeLock is a lock that tests play.
type FakeLock struct {
	Key   lock.Key
	Token lock.Token
	// Signed is the token's signed form.
	Signed string
	Left   func() time.Duration
	// SessionLeft may be nil: as long as Left.
	SessionLeft func() time.Duration
	Lost        <-chan struct{}
	Cause       func() error
	Release     func(ctx context.Context) error
}

// RunOptions is what run asked for.
type RunOptions struct {
	Servers        []string
	Namespace, Key string
	Owner          string
	Wait           time.Duration
	TTL, Lease     *time.Duration
}

// MainWithLock is Main with a played lock in place of the service.
func MainWithLock(
	ctx context.Context, args []string, env func(string) string, streams Streams,
	acquire func(ctx context.Context, o RunOptions) (FakeLock, error),
) int {
	p := newProgram(env, streams)
	p.acquire = func(ctx context.Context, o runOptions) (*held, error) {
		f, err := acquire(ctx, RunOptions{o.servers, o.namespace, o.key, o.owner, o.wait, o.ttl, o.lease})
		if err != nil {
			return nil, err
		}
		if f.SessionLeft == nil {
			f.SessionLeft = f.Left
		}
		return &held{
			key: f.Key, token: f.Token, signed: f.Signed, left: f.Left, sessionLeft: f.SessionLeft,
			lost: f.Lost, cause: f.Cause, release: f.Release,
		}, nil
	}
	return p.main(ctx, args)
}

// MainAt is Main at a moment that does not pass.
func MainAt(ctx context.Context, args []string, env func(string) string, streams Streams, now time.Time) int {
	p := newProgram(env, streams)
	p.now = func() time.Time { return now }
	return p.main(ctx, args)
}
