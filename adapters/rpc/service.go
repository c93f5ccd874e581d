package rpc

import (
	"context"
	"time"

	"github.com/fencelock/fencelock/core/lock"
	"github.com/fencelock/fencelock/core/port"
	"github.com/fencelock/fencelock/core/service"
)

// Service is what the handlers ask of the core; [*service.Service] is the implementation.
type Service interface {
	Sessions
	Locks
	Operations
}

// Sessions is the part about liveness.
type Sessions interface {
	OpenSession(ctx context.Context, req port.OpenRequest) (lock.Session, error)
	Heartbeat(ctx context.Context, req service.HeartbeatRequest) (service.HeartbeatResult, error)
	CloseSession(ctx context.Context, id lock.SessionID) (int, error)
	WatchSession(id lock.SessionID) (events <-chan service.SessionEvent, cancel func())
	Watch() *service.Watcher
}

// Locks is the part about grants.
type Locks interface {
	Acquire(ctx context.Context, req service.AcquireRequest) (service.AcquireResult, error)
	Abandon(ctx context.Context, key lock.Key, session lock.SessionID, id lock.RequestID) (bool, error)
	Extend(ctx context.Context, key lock.Key, session lock.SessionID, token lock.Token, lease time.Duration) (lock.Grant, error)
	Release(ctx context.Context, key lock.Key, session lock.SessionID, token lock.Token) (bool, error)
	Inspect(ctx context.Context, key lock.Key) (service.Inspection, error)
	WatchLock(ctx context.Context, key lock.Key, send func(service.Inspection) error) error
	ListLocks(ctx context.Context, namespace, prefix string, page port.Page) ([]lock.Grant, string, error)
}

// Operations is the part for operators.
type Operations interface {
	ListSessions(ctx context.Context, page port.Page) ([]lock.Session, string, error)
	ListRevocations(ctx context.Context, namespace string, page port.Page) ([]lock.Revocation, string, error)
	Revoke(ctx context.Context, req port.RevokeRequest) (lock.Revocation, error)
	RaiseFloor(ctx context.Context, req port.FloorRequest) (port.FloorRaised, error)
	Counts(ctx context.Context) (port.Counts, error)
	Status() service.Status
	BackendID() string
}
