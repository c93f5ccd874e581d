package rpc

import (
	"google.golang.org/protobuf/types/known/durationpb"

	fencelockv1 "github.com/fencelock/fencelock/contracts/api/fencelock/v1"
	"github.com/fencelock/fencelock/core/lock"
	"github.com/fencelock/fencelock/core/service"
)

// Signer gives tokens their signed form, as *fence.Signer does.
type Signer interface {
	Sign(key lock.Key, token lock.Token, sessionHash string) string
}

// holder writes what only the session that holds a grant may see.
type holder struct {
	// signer is nil where tokens are not signed.
	signer Signer
}

func (h holder) grant(g lock.Grant) *fencelockv1.Grant {
	wire := grantForAnyone(g)
	wire.RequestId = string(g.RequestID)
	if h.signer != nil {
		wire.SignedToken = h.signer.Sign(g.Key, g.Token, g.Session.Hash())
	}
	return wire
}

func (h holder) grants(grants []lock.Grant) *fencelockv1.HeldGrants {
	held := &fencelockv1.HeldGrants{Grants: make([]*fencelockv1.Grant, len(grants))}
	for i, g := range grants {
		held.Grants[i] = h.grant(g)
	}
	return held
}

func (h holder) acquired(r service.AcquireResult) *fencelockv1.AcquireResponse {
	if r.Granted {
		grant := h.grant(r.Grant)
		grant.Waited = durationpb.New(r.Waited)
		return &fencelockv1.AcquireResponse{Outcome: &fencelockv1.AcquireResponse_Grant{Grant: grant}}
	}
	return &fencelockv1.AcquireResponse{Outcome: &fencelockv1.AcquireResponse_Held{Held: &fencelockv1.Held{
		Owner:       string(r.Holder.Owner),
		Token:       int64(r.Holder.Token),
		AcquiredAt:  moment(r.Holder.AcquiredAt),
		Waiters:     count(r.Waiters),
		SessionHash: r.Holder.Session.Hash(),
	}}}
}

// event is news for a client that has presented the session's id.
func (h holder) event(e service.SessionEvent) *fencelockv1.SessionEvent {
	wire := &fencelockv1.SessionEvent{SessionId: e.Session.Reveal()}
	switch e.Kind {
	case service.GrantLost:
		wire.Event = &fencelockv1.SessionEvent_GrantLost{GrantLost: &fencelockv1.GrantLost{
			Namespace: e.Key.Namespace(),
			Key:       e.Key.Name(),
			Token:     int64(e.Token),
			Reason:    lossReason(e.Reason),
		}}
	case service.SessionDead:
		wire.Event = &fencelockv1.SessionEvent_SessionDead{SessionDead: &fencelockv1.SessionDead{}}
	case service.Draining:
		wire.Event = &fencelockv1.SessionEvent_Draining{Draining: &fencelockv1.Draining{}}
	case service.HeldNow:
		wire.Event = &fencelockv1.SessionEvent_Held{Held: h.grants(e.Held)}
	}
	return wire
}
