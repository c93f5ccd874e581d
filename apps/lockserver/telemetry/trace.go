package telemetry

import (
	"context"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	"github.com/fencelock/fencelock/adapters/rpc"
	"github.com/fencelock/fencelock/core/lock"
	"github.com/fencelock/fencelock/core/port"
	"github.com/fencelock/fencelock/core/service"
)

// Traced wraps the service so that each call about a grant is a span, whichever way it came in: as a unary call or
// inside a frame. Heartbeats have none: they are many and all alike.
func Traced(inner rpc.Service, tracer trace.Tracer) rpc.Service {
	return &traced{Service: inner, tracer: tracer}
}

type traced struct {
	rpc.Service
	tracer trace.Tracer
}

func (t *traced) start(
	ctx context.Context, name string, key lock.Key, session lock.SessionID, token lock.Token,
) (context.Context, trace.Span) {
	return t.tracer.Start(ctx, name, trace.WithAttributes( //nolint:spancheck // the caller ends it with end
		attribute.String("lock.namespace", key.Namespace()),
		attribute.String("lock.key", key.Name()),
		attribute.String("lock.session_hash", session.Hash()),
		attribute.Int64("lock.token", int64(token)),
	))
}

func end(span trace.Span, err error) {
	if err != nil {
		span.SetStatus(codes.Error, string(lock.CodeOf(err)))
	}
	span.End()
}

// Acquire implements rpc.Service. The token is 0 until there is a grant.
func (t *traced) Acquire(ctx context.Context, req service.AcquireRequest) (service.AcquireResult, error) {
	ctx, span := t.start(ctx, "lock.acquire", req.Key, req.Session, 0)
	result, err := t.Service.Acquire(ctx, req)
	if result.Granted {
		span.SetAttributes(attribute.Int64("lock.token", int64(result.Grant.Token)))
	}
	end(span, err)
	return result, err
}

// Abandon implements rpc.Service.
func (t *traced) Abandon(ctx context.Context, key lock.Key, session lock.SessionID, id lock.RequestID) (bool, error) {
	ctx, span := t.start(ctx, "lock.abandon", key, session, 0)
	withdrawn, err := t.Service.Abandon(ctx, key, session, id)
	end(span, err)
	return withdrawn, err
}

// Extend implements rpc.Service.
func (t *traced) Extend(
	ctx context.Context, key lock.Key, session lock.SessionID, token lock.Token, lease time.Duration,
) (lock.Grant, error) {
	ctx, span := t.start(ctx, "lock.extend", key, session, token)
	grant, err := t.Service.Extend(ctx, key, session, token, lease)
	end(span, err)
	return grant, err
}

// Release implements rpc.Service.
func (t *traced) Release(ctx context.Context, key lock.Key, session lock.SessionID, token lock.Token) (bool, error) {
	ctx, span := t.start(ctx, "lock.release", key, session, token)
	released, err := t.Service.Release(ctx, key, session, token)
	end(span, err)
	return released, err
}

// Revoke implements rpc.Service.
func (t *traced) Revoke(ctx context.Context, req port.RevokeRequest) (lock.Revocation, error) {
	ctx, span := t.start(ctx, "lock.revoke", req.Key, lock.SessionID{}, req.Expected)
	record, err := t.Service.Revoke(ctx, req)
	if err == nil {
		span.SetAttributes(attribute.Int64("lock.token", int64(record.PreviousToken)))
	}
	end(span, err)
	return record, err
}
