package client

import (
	"context"
	"errors"
	"os"
	"strconv"

	"github.com/fencelock/fencelock/core/lock"
)

// Do opens a session, acquires the key, runs fn, and frees the key. fn's context
// ends with ctx and when the lock is lost; Do waits for fn to return
// either way, so fn must heed it. The token is fn's to present to every resource
// that the lock protects, as [TokenHeader] of fn's context gives it. Without a lock fn does not run. The errors are those of
// [Client.OpenSession] and [Session.Acquire], fn's own, and
// [lock.ErrLost], joined with fn's, if the lock was lost before fn returned: then what fn
// did may have been refused by a fence, even if fn saw no error.
func (c *Client) Do(
	ctx context.Context, key string, fn func(ctx context.Context, token lock.Token) error, opts ...DoOption,
) (err error) {
	cfg := doConfig{owner: defaultOwner()}
	for _, opt := range opts {
		opt.applyDo(&cfg)
	}
	s, err := c.openSession(ctx, cfg.owner, cfg.session)
	if err != nil {
		return err
	}
	defer func() {
		// The session's locks go with it. If the server cannot be asked they go when it dies.
		_, _ = s.Close(context.WithoutCancel(ctx))
	}()
	l, err := s.acquire(ctx, key, cfg.acquire)
	if err != nil {
		return err
	}
	work, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(l.Context(), func() { cancel(context.Cause(l.Context())) })()
	err = fn(context.WithValue(work, lockKey{}, l), l.Token())
	if lost := l.CheckStillHeld(); lost != nil {
		return errors.Join(lost, err)
	}
	return err
}

type lockKey struct{}

// TokenHeader is [Lock.TokenHeader] of the lock that ctx, which [Client.Do] gave to its function, runs under; "" for any other.
func TokenHeader(ctx context.Context) string {
	l, ok := ctx.Value(lockKey{}).(*Lock)
	if !ok {
		return ""
	}
	return l.TokenHeader()
}

// defaultOwner is "host:pid", cut to what an owner label may be.
func defaultOwner() string {
	host, _ := os.Hostname()
	pid := ":" + strconv.Itoa(os.Getpid())
	owner := host[:min(len(host), lock.MaxOwnerRunes-len(pid))] + pid
	if _, err := lock.NewOwner(owner); err != nil {
		return "client" + pid
	}
	return owner
}
