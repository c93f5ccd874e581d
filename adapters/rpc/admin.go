package rpc

import (
	"context"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/types/known/durationpb"

	fencelockv1 "github.com/fencelock/fencelock/contracts/api/fencelock/v1"
	"github.com/fencelock/fencelock/core/lock"
	"github.com/fencelock/fencelock/core/port"
)

// adminHandler implements AdminService.
type adminHandler struct{ cfg Config }

// Revoke ends a grant.
func (h *adminHandler) Revoke(
	ctx context.Context, req *connect.Request[fencelockv1.RevokeRequest],
) (*connect.Response[fencelockv1.RevokeResponse], error) {
	key, err := lock.NewKey(req.Msg.GetNamespace(), req.Msg.GetKey())
	if err != nil {
		return nil, err
	}
	expected := lock.Token(req.Msg.GetExpectedToken())
	if expected < 0 {
		return nil, lock.Invalid("expected_token", "must not be negative")
	}
	record, err := h.cfg.Service.Revoke(ctx, port.RevokeRequest{
		Key: key, Operator: req.Msg.GetOperator(), Reason: req.Msg.GetReason(), Expected: expected,
	})
	if err != nil {
		return nil, err
	}
	return connect.NewResponse(&fencelockv1.RevokeResponse{Revocation: revocation(record)}), nil
}

// ListSessions lists live sessions, without their ids.
func (h *adminHandler) ListSessions(
	ctx context.Context, req *connect.Request[fencelockv1.ListSessionsRequest],
) (*connect.Response[fencelockv1.ListSessionsResponse], error) {
	page := pageOf(req.Msg.GetPageSize(), req.Msg.GetPageToken())
	sessions, next, err := h.cfg.Service.ListSessions(ctx, page)
	if err != nil {
		return nil, err
	}
	answer := &fencelockv1.ListSessionsResponse{NextPageToken: next, Sessions: make([]*fencelockv1.SessionSummary, len(sessions))}
	for i, s := range sessions {
		answer.Sessions[i] = sessionForAnyone(s)
	}
	return connect.NewResponse(answer), nil
}

// ListRevocations lists audit records.
func (h *adminHandler) ListRevocations(
	ctx context.Context, req *connect.Request[fencelockv1.ListRevocationsRequest],
) (*connect.Response[fencelockv1.ListRevocationsResponse], error) {
	page := pageOf(req.Msg.GetPageSize(), req.Msg.GetPageToken())
	namespace, err := lock.NewNamespace(req.Msg.GetNamespace())
	if err != nil {
		return nil, err
	}
	records, next, err := h.cfg.Service.ListRevocations(ctx, namespace, page)
	if err != nil {
		return nil, err
	}
	answer := &fencelockv1.ListRevocationsResponse{NextPageToken: next, Revocations: make([]*fencelockv1.Revocation, len(records))}
	for i, r := range records {
		answer.Revocations[i] = revocation(r)
	}
	return connect.NewResponse(answer), nil
}

// GetServerInfo tells what answers. It answers also while the store does not: ready is false then and
// the totals are 0.
func (h *adminHandler) GetServerInfo(
	ctx context.Context, _ *connect.Request[fencelockv1.GetServerInfoRequest],
) (*connect.Response[fencelockv1.GetServerInfoResponse], error) {
	status := h.cfg.Service.Status()
	answer := &fencelockv1.GetServerInfoResponse{
		Version:      h.cfg.Info.Version,
		Backend:      h.cfg.Service.BackendID(),
		Ready:        !status.Draining && h.cfg.Ready(ctx) == nil,
		Draining:     status.Draining,
		SessionTtl:   durationpb.New(h.cfg.Info.SessionTTL),
		SafetyMargin: h.cfg.Info.SafetyMargin,
		StartedAt:    moment(h.cfg.Info.StartedAt),
		Waiters:      count(status.Waiters),
	}
	if answer.GetReady() {
		if totals, err := h.cfg.Service.Counts(ctx); err == nil {
			answer.Grants, answer.Sessions = int64(totals.Grants), int64(totals.Sessions)
		}
	}
	return connect.NewResponse(answer), nil
}

// RaiseTokenFloor lifts all future tokens.
func (h *adminHandler) RaiseTokenFloor(
	ctx context.Context, req *connect.Request[fencelockv1.RaiseTokenFloorRequest],
) (*connect.Response[fencelockv1.RaiseTokenFloorResponse], error) {
	above := lock.Token(req.Msg.GetAbove())
	if above <= 0 {
		return nil, lock.Invalid("above", "must be positive")
	}
	raised, err := h.cfg.Service.RaiseFloor(ctx, port.FloorRequest{
		Above: above, Operator: req.Msg.GetOperator(), Reason: req.Msg.GetReason(),
	})
	if err != nil {
		return nil, err
	}
	return connect.NewResponse(&fencelockv1.RaiseTokenFloorResponse{
		EndedGrants: count(raised.EndedGrants), Floor: int64(raised.Floor), At: moment(raised.At),
	}), nil
}
