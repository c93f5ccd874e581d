package rpc

import (
	"context"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	fencelockv1 "github.com/fencelock/fencelock/contracts/api/fencelock/v1"
	"github.com/fencelock/fencelock/core/lock"
	"github.com/fencelock/fencelock/core/port"
	"github.com/fencelock/fencelock/core/service"
)

// calls carries out what both the unary methods and the operations of Attach ask for.
type calls struct {
	service Service
	holder  holder
	// defaultLease is for acquires that name none.
	defaultLease time.Duration
}

// heartbeat renews a session; receivedAt is when the request arrived, on the server's clock.
func (c calls) heartbeat(
	ctx context.Context, receivedAt time.Duration, req *fencelockv1.HeartbeatRequest,
) (*fencelockv1.HeartbeatResponse, error) {
	session, err := lock.ParseSessionID(req.GetSessionId())
	if err != nil {
		return nil, err
	}
	result, err := c.service.Heartbeat(ctx, service.HeartbeatRequest{
		Session:    session,
		ReceivedAt: receivedAt,
		Digest:     req.GetHeldDigest(),
		Check:      req.HeldDigest != nil,
	})
	if err != nil {
		return nil, err
	}
	answer := &fencelockv1.HeartbeatResponse{Remaining: durationpb.New(result.Remaining)}
	if result.Differs {
		answer.Held = c.holder.grants(result.Held)
	}
	return answer, nil
}

func (c calls) acquire(ctx context.Context, req *fencelockv1.AcquireRequest) (*fencelockv1.AcquireResponse, error) {
	key, session, err := parseName(req)
	if err != nil {
		return nil, err
	}
	id, err := lock.NewRequestID(req.GetRequestId())
	if err != nil {
		return nil, err
	}
	wait, err := duration("wait", req.GetWait())
	if err != nil {
		return nil, err
	}
	lease, err := wholeSeconds("lease", req.GetLease())
	if err != nil {
		return nil, err
	}
	if req.GetLease() == nil {
		lease = c.defaultLease
	}
	result, err := c.service.Acquire(ctx, service.AcquireRequest{
		GrantRequest: port.GrantRequest{
			Key: key, Session: session, RequestID: id, Lease: lease, Metadata: req.GetMetadata(),
		},
		Wait: wait,
	})
	if err != nil {
		return nil, err
	}
	return c.holder.acquired(result), nil
}

func (c calls) abandon(ctx context.Context, req *fencelockv1.AbandonRequest) (*fencelockv1.AbandonResponse, error) {
	key, session, err := parseName(req)
	if err != nil {
		return nil, err
	}
	id, err := lock.NewRequestID(req.GetRequestId())
	if err != nil {
		return nil, err
	}
	withdrawn, err := c.service.Abandon(ctx, key, session, id)
	if err != nil {
		return nil, err
	}
	return &fencelockv1.AbandonResponse{Withdrawn: withdrawn}, nil
}

func (c calls) extend(ctx context.Context, req *fencelockv1.ExtendRequest) (*fencelockv1.ExtendResponse, error) {
	key, session, err := parseName(req)
	if err != nil {
		return nil, err
	}
	token, err := parseToken(req.GetToken())
	if err != nil {
		return nil, err
	}
	lease, err := wholeSeconds("lease", req.GetLease())
	if err != nil {
		return nil, err
	}
	grant, err := c.service.Extend(ctx, key, session, token, lease)
	if err != nil {
		return nil, err
	}
	return &fencelockv1.ExtendResponse{Grant: c.holder.grant(grant)}, nil
}

func (c calls) release(ctx context.Context, req *fencelockv1.ReleaseRequest) (*fencelockv1.ReleaseResponse, error) {
	key, session, err := parseName(req)
	if err != nil {
		return nil, err
	}
	token, err := parseToken(req.GetToken())
	if err != nil {
		return nil, err
	}
	released, err := c.service.Release(ctx, key, session, token)
	if err != nil {
		return nil, err
	}
	return &fencelockv1.ReleaseResponse{Released: released}, nil
}
