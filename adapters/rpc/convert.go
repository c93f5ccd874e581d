package rpc

import (
	"math"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	fencelockv1 "github.com/fencelock/fencelock/contracts/api/fencelock/v1"
	"github.com/fencelock/fencelock/core/lock"
	"github.com/fencelock/fencelock/core/port"
	"github.com/fencelock/fencelock/core/service"
)

// grantForAnyone is a grant as everybody may see it: without the request id that made it.
func grantForAnyone(g lock.Grant) *fencelockv1.Grant {
	wire := &fencelockv1.Grant{
		Namespace:   g.Key.Namespace(),
		Key:         g.Key.Name(),
		Token:       int64(g.Token),
		Owner:       string(g.Owner),
		AcquiredAt:  moment(g.AcquiredAt),
		Metadata:    g.Metadata,
		SessionHash: g.Session.Hash(),
	}
	if g.Lease > 0 {
		wire.LeaseRemaining = durationpb.New(g.LeaseRemaining)
	}
	return wire
}

func inspection(i service.Inspection) *fencelockv1.InspectResponse {
	wire := &fencelockv1.InspectResponse{Held: i.Held, Waiters: count(i.Waiters), Floor: int64(i.Floor)}
	if i.Held {
		wire.Grant = grantForAnyone(i.Grant)
	}
	return wire
}

func sessionForOpener(s lock.Session) *fencelockv1.Session {
	return &fencelockv1.Session{
		Id:        s.ID.Reveal(),
		Owner:     string(s.Owner),
		Ttl:       durationpb.New(s.TTL),
		CreatedAt: moment(s.CreatedAt),
		Metadata:  s.Metadata,
	}
}

func sessionForAnyone(s lock.Session) *fencelockv1.SessionSummary {
	return &fencelockv1.SessionSummary{
		Hash:      s.ID.Hash(),
		Owner:     string(s.Owner),
		Ttl:       durationpb.New(s.TTL),
		CreatedAt: moment(s.CreatedAt),
		Metadata:  s.Metadata,
	}
}

func revocation(r lock.Revocation) *fencelockv1.Revocation {
	return &fencelockv1.Revocation{
		Id:                  r.ID,
		Namespace:           r.Key.Namespace(),
		Key:                 r.Key.Name(),
		Operator:            r.Operator,
		Reason:              r.Reason,
		At:                  moment(r.At),
		PreviousOwner:       string(r.PreviousOwner),
		PreviousSessionHash: r.PreviousSession.Hash(),
		PreviousToken:       int64(r.PreviousToken),
		Floor:               int64(r.Floor),
	}
}

func lossReason(kind port.FeedKind) fencelockv1.LossReason {
	if kind == port.GrantLapsed {
		return fencelockv1.LossReason_LOSS_REASON_LAPSED
	}
	return fencelockv1.LossReason_LOSS_REASON_REVOKED
}

// moment leaves out a time that nobody knows.
func moment(t time.Time) *timestamppb.Timestamp {
	if t.IsZero() {
		return nil
	}
	return timestamppb.New(t)
}

// count fits a number of things into the wire's type.
func count(n int) int32 { return int32(min(n, math.MaxInt32)) } //nolint:gosec // bounded above, counts are not negative
