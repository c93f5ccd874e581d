package rpc

import (
	"context"
	"fmt"

	"connectrpc.com/connect"

	fencelockv1 "github.com/fencelock/fencelock/contracts/api/fencelock/v1"
	"github.com/fencelock/fencelock/core/lock"
	"github.com/fencelock/fencelock/core/port"
	"github.com/fencelock/fencelock/core/service"
)

// sessionHandler implements SessionService. Attach is in attach.go.
type sessionHandler struct {
	calls    calls
	cfg      Config
	draining <-chan struct{}
}

// OpenSession starts a session.
func (h *sessionHandler) OpenSession(
	ctx context.Context, req *connect.Request[fencelockv1.OpenSessionRequest],
) (*connect.Response[fencelockv1.OpenSessionResponse], error) {
	owner, err := lock.NewOwner(req.Msg.GetOwner())
	if err != nil {
		return nil, err
	}
	ttl, err := wholeSeconds("ttl", req.Msg.GetTtl())
	if err != nil {
		return nil, err
	}
	session, err := h.cfg.Service.OpenSession(ctx, port.OpenRequest{Owner: owner, TTL: ttl, Metadata: req.Msg.GetMetadata()})
	if err != nil {
		return nil, err
	}
	return connect.NewResponse(&fencelockv1.OpenSessionResponse{Session: sessionForOpener(session)}), nil
}

// Heartbeat renews a session.
func (h *sessionHandler) Heartbeat(
	ctx context.Context, req *connect.Request[fencelockv1.HeartbeatRequest],
) (*connect.Response[fencelockv1.HeartbeatResponse], error) {
	return respond(h.calls.heartbeat(ctx, arrivalOf(ctx).at, req.Msg))
}

// CloseSession ends a session.
func (h *sessionHandler) CloseSession(
	ctx context.Context, req *connect.Request[fencelockv1.CloseSessionRequest],
) (*connect.Response[fencelockv1.CloseSessionResponse], error) {
	id, err := lock.ParseSessionID(req.Msg.GetSessionId())
	if err != nil {
		return nil, err
	}
	released, err := h.cfg.Service.CloseSession(ctx, id)
	if err != nil {
		return nil, err
	}
	return connect.NewResponse(&fencelockv1.CloseSessionResponse{Released: count(released)}), nil
}

// WatchSession sends events until the session is over, the server drains or the caller leaves.
func (h *sessionHandler) WatchSession(
	ctx context.Context, req *connect.Request[fencelockv1.WatchSessionRequest], stream *connect.ServerStream[fencelockv1.WatchSessionResponse],
) error {
	id, err := lock.ParseSessionID(req.Msg.GetSessionId())
	if err != nil {
		return err
	}
	events, cancel := h.cfg.Service.WatchSession(id)
	defer cancel()
	out := newSender(arrivalOf(ctx), h.cfg.Limits.SendTime)
	draining := h.draining
	for {
		var event service.SessionEvent
		open := true
		select {
		case <-ctx.Done():
			return fmt.Errorf("watch session: %w", ctx.Err())
		case event, open = <-events:
			event.Session = id
		case <-draining:
			event = service.SessionEvent{Kind: service.Draining, Session: id}
		}
		if !open {
			return lock.Contention("the watch has ended", false, nil)
		}
		message := &fencelockv1.WatchSessionResponse{Event: h.calls.holder.event(event)}
		if err := out.send(func() error { return stream.Send(message) }); err != nil {
			return err
		}
		if event.Kind == service.SessionDead || event.Kind == service.Draining {
			return nil
		}
	}
}

// respond wraps what calls return for Connect.
func respond[T any](message *T, err error) (*connect.Response[T], error) {
	if err != nil {
		return nil, err
	}
	return connect.NewResponse(message), nil
}
