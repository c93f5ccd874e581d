package port

import "github.com/fencelock/fencelock/core/lock"

// FeedKind says what happened.
type FeedKind int

const (
	// GrantRevoked says that an operator ended the grant.
	GrantRevoked FeedKind = iota + 1
	// GrantLapsed says that the lease of the grant ran out.
	GrantLapsed
	// SessionOver says that the session died or was closed; all its grants are over.
	SessionOver
	// Resync says that events may have been missed; re-read what matters.
	Resync
)

// FeedEvent is a hint that something ended. Key, Token and Session are set as
// far as the kind knows them.
type FeedEvent struct {
	Kind    FeedKind
	Key     lock.Key
	Session lock.SessionID
	Token   lock.Token
}

// Feed brings rare events, so that a server can tell clients at once. Nothing
// is correct only because of it.
type Feed interface {
	// Subscribe starts a subscription, which begins with a Resync once it is in
	// place. A subscriber that falls behind loses events and gets a Resync instead.
	Subscribe() Subscription
}

// Subscription is one stream of events.
type Subscription interface {
	// Events is closed when the subscription or the feed ends.
	Events() <-chan FeedEvent
	// Close ends the subscription. It may be called more than once.
	Close()
}
