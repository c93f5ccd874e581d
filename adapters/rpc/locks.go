package rpc

import (
	"context"

	"connectrpc.com/connect"

	fencelockv1 "github.com/fencelock/fencelock/contracts/api/fencelock/v1"
	"github.com/fencelock/fencelock/core/lock"
	"github.com/fencelock/fencelock/core/service"
)

// lockHandler implements LockService.
type lockHandler struct {
	calls    calls
	cfg      Config
	draining <-chan struct{}
}

// Acquire asks for a grant.
func (h *lockHandler) Acquire(
	ctx context.Context, req *connect.Request[fencelockv1.AcquireRequest],
) (*connect.Response[fencelockv1.AcquireResponse], error) {
	return respond(h.calls.acquire(ctx, req.Msg))
}

// Abandon withdraws a request id.
func (h *lockHandler) Abandon(
	ctx context.Context, req *connect.Request[fencelockv1.AbandonRequest],
) (*connect.Response[fencelockv1.AbandonResponse], error) {
	return respond(h.calls.abandon(ctx, req.Msg))
}

// Extend moves the end of a leased grant.
func (h *lockHandler) Extend(
	ctx context.Context, req *connect.Request[fencelockv1.ExtendRequest],
) (*connect.Response[fencelockv1.ExtendResponse], error) {
	return respond(h.calls.extend(ctx, req.Msg))
}

// Release ends a grant.
func (h *lockHandler) Release(
	ctx context.Context, req *connect.Request[fencelockv1.ReleaseRequest],
) (*connect.Response[fencelockv1.ReleaseResponse], error) {
	return respond(h.calls.release(ctx, req.Msg))
}

// Inspect pictures a key.
func (h *lockHandler) Inspect(
	ctx context.Context, req *connect.Request[fencelockv1.InspectRequest],
) (*connect.Response[fencelockv1.InspectResponse], error) {
	key, err := lock.NewKey(req.Msg.GetNamespace(), req.Msg.GetKey())
	if err != nil {
		return nil, err
	}
	picture, err := h.cfg.Service.Inspect(ctx, key)
	if err != nil {
		return nil, err
	}
	return connect.NewResponse(inspection(picture)), nil
}

// ListLocks lists grants.
func (h *lockHandler) ListLocks(
	ctx context.Context, req *connect.Request[fencelockv1.ListLocksRequest],
) (*connect.Response[fencelockv1.ListLocksResponse], error) {
	page := pageOf(req.Msg.GetPageSize(), req.Msg.GetPageToken())
	namespace, err := lock.NewNamespace(req.Msg.GetNamespace())
	if err != nil {
		return nil, err
	}
	prefix, err := lock.NewKeyPrefix(req.Msg.GetPrefix())
	if err != nil {
		return nil, err
	}
	grants, next, err := h.cfg.Service.ListLocks(ctx, namespace, prefix, page)
	if err != nil {
		return nil, err
	}
	answer := &fencelockv1.ListLocksResponse{NextPageToken: next, Grants: make([]*fencelockv1.Grant, len(grants))}
	for i, g := range grants {
		answer.Grants[i] = grantForAnyone(g)
	}
	return connect.NewResponse(answer), nil
}

// WatchLock sends pictures of a key until the server drains or the caller leaves.
func (h *lockHandler) WatchLock(
	ctx context.Context, req *connect.Request[fencelockv1.WatchLockRequest], stream *connect.ServerStream[fencelockv1.WatchLockResponse],
) error {
	key, err := lock.NewKey(req.Msg.GetNamespace(), req.Msg.GetKey())
	if err != nil {
		return err
	}
	watch, cancel := h.untilDraining(ctx)
	defer cancel()
	out := newSender(arrivalOf(ctx), h.cfg.Limits.SendTime)
	err = h.cfg.Service.WatchLock(watch, key, func(picture service.Inspection) error {
		message := &fencelockv1.WatchLockResponse{State: inspection(picture)}
		return out.send(func() error { return stream.Send(message) })
	})
	if isClosed(h.draining) && ctx.Err() == nil {
		return lock.Contention("the server is draining", false, nil)
	}
	return err
}

// untilDraining derives a context that also ends when the server drains.
func (h *lockHandler) untilDraining(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(ctx)
	go func() {
		select {
		case <-h.draining:
			cancel()
		case <-ctx.Done():
		}
	}()
	return ctx, cancel
}
