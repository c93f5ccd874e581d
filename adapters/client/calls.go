package client

import (
	"context"
	"errors"
	"time"

	"connectrpc.com/connect"

	v1 "github.com/fencelock/fencelock/contracts/api/fencelock/v1"
	"github.com/fencelock/fencelock/core/lock"
)

// Pauses between tries of one call.
const (
	retryBase = 20 * time.Millisecond
	retryMost = time.Second
)

var errMalformed = lock.Contention("the answer makes no sense", true, nil)

// invoke sends one operation over the stream if there is one, else as a unary
// call. The flight is that of the stream: it may outlast the context.
func invoke[Req, Res any](
	ctx context.Context, via *conn, op *v1.Operation, pick func(*v1.OperationResult) *Res,
	unary func(context.Context, *connect.Request[Req]) (*connect.Response[Res], error), req *Req,
) (*Res, *flight, error) {
	if via != nil {
		if f, err := via.begin(op); err == nil {
			result, err := via.wait(ctx, op.GetId(), f)
			if err != nil {
				return nil, f, err
			}
			if res := pick(result); res != nil {
				return res, nil, nil
			}
			return nil, nil, errMalformed
		}
	}
	resp, err := unary(ctx, connect.NewRequest(req))
	if err != nil {
		if ctx.Err() != nil {
			return nil, nil, interrupted(context.Cause(ctx))
		}
		return nil, nil, Translate(err)
	}
	return resp.Msg, nil, nil
}

func (c *Client) heartbeat(ctx context.Context, via *conn, req *v1.HeartbeatRequest) (*v1.HeartbeatResponse, error) {
	op := &v1.Operation{Call: &v1.Operation_Heartbeat{Heartbeat: req}}
	res, _, err := invoke(ctx, via, op, (*v1.OperationResult).GetHeartbeat, c.sessionRPC.Heartbeat, req)
	return res, err
}

func (c *Client) acquire(
	ctx context.Context, req *v1.AcquireRequest,
	unary func(context.Context, *connect.Request[v1.AcquireRequest]) (*connect.Response[v1.AcquireResponse], error),
) (*v1.AcquireResponse, *flight, error) {
	op := &v1.Operation{Call: &v1.Operation_Acquire{Acquire: req}}
	return invoke(ctx, c.link.current(), op, (*v1.OperationResult).GetAcquire, unary, req)
}

func (c *Client) extend(ctx context.Context, req *v1.ExtendRequest) (*v1.ExtendResponse, error) {
	op := &v1.Operation{Call: &v1.Operation_Extend{Extend: req}}
	res, _, err := invoke(ctx, c.link.current(), op, (*v1.OperationResult).GetExtend, c.lockRPC.Extend, req)
	return res, err
}

func (c *Client) release(ctx context.Context, req *v1.ReleaseRequest) (*v1.ReleaseResponse, error) {
	op := &v1.Operation{Call: &v1.Operation_Release{Release: req}}
	res, _, err := invoke(ctx, c.link.current(), op, (*v1.OperationResult).GetRelease, c.lockRPC.Release, req)
	return res, err
}

func (c *Client) abandon(ctx context.Context, req *v1.AbandonRequest) error {
	op := &v1.Operation{Call: &v1.Operation_Abandon{Abandon: req}}
	_, _, err := invoke(ctx, c.link.current(), op, (*v1.OperationResult).GetAbandon, c.lockRPC.Abandon, req)
	return err
}

// retry repeats a call that may be repeated until it has a definite answer,
// within the call timeout. The last error is returned.
func (c *Client) retry(ctx context.Context, call func(ctx context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, c.cfg.callTimeout)
	defer cancel()
	wait := backoff{base: retryBase, most: retryMost}
	for {
		err := c.try(ctx, c.cfg.tryTimeout(), call)
		if err == nil || !lock.IsRetryable(err) || ctx.Err() != nil {
			return err
		}
		if pause(ctx, wait.next(retryAfter(err))) != nil {
			return err
		}
	}
}

// try bounds one try.
func (c *Client) try(ctx context.Context, patience time.Duration, call func(ctx context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	return call(ctx)
}

// detached runs a clean-up that outlives the call it belongs to, bounded by the
// call timeout. Close waits for it.
func (c *Client) detached(clean func(ctx context.Context)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return // sessions that are not heard of any more die, and take what is left with them
	}
	c.tidying.Go(func() {
		ctx, cancel := context.WithTimeout(c.ctx, c.cfg.callTimeout)
		defer cancel()
		clean(ctx)
	})
}

// retryAfter is the pause that an error suggests.
func retryAfter(err error) time.Duration {
	if e, ok := errors.AsType[*lock.Error](err); ok {
		return e.RetryAfter
	}
	return 0
}
