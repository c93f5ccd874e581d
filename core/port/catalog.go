package port

import (
	"context"
	"time"

	"github.com/fencelock/fencelock/core/lock"
)

// Page asks for part of a listing.
type Page struct {
	// Size is 1 to [MaxPageSize].
	Size int
	// Token is the Next of the previous page; empty for the first. It is opaque;
	// one that does not come from the same listing is [lock.ErrInvalid].
	Token string
}

// Limits of a page.
const (
	DefaultPageSize = 100
	MaxPageSize     = 1000
)

// Counts are totals over the whole store, for gauges.
type Counts struct {
	Grants   int
	Sessions int
}

// Catalog lists what the store holds. Listings are plausible pictures: what
// is stable throughout the paging appears exactly once.
type Catalog interface {
	// Grants lists live grants of a namespace by key, for keys with the prefix.
	Grants(ctx context.Context, namespace, prefix string, page Page) (grants []lock.Grant, next string, err error)
	// Sessions lists live sessions in a stable order.
	Sessions(ctx context.Context, page Page) (sessions []lock.Session, next string, err error)
	// Revocations lists audit records of a namespace, newest first. A raised floor concerns
	// all namespaces, so each of them lists its record.
	Revocations(ctx context.Context, namespace string, page Page) (revocations []lock.Revocation, next string, err error)
	// Counts returns totals over all namespaces.
	Counts(ctx context.Context) (Counts, error)
}

// FloorRequest is an operator's act after a restore: every token granted from
// now on is above Above, and every grant ends.
type FloorRequest struct {
	Above    lock.Token
	Operator string
	Reason   string
}

// FloorRaised is its outcome.
type FloorRaised struct {
	// EndedGrants is how many grants the act ended.
	EndedGrants int
	// Floor is the token above which every further grant is; at least Above.
	Floor lock.Token
	At    time.Time
}

// Custodian looks after the store as a whole.
type Custodian interface {
	// Ping returns nil if the store can grant now.
	Ping(ctx context.Context) error
	// RaiseFloor lifts all future tokens above a number, ends all grants, and appends one
	// audit record, also if there were none, in one atomic step. The record has no key and names
	// no previous grant, however many there were; [Catalog] lists it in every namespace. It
	// ends the state [lock.ErrUnsafeStore].
	RaiseFloor(ctx context.Context, req FloorRequest) (FloorRaised, error)
}

// Backend is one store behind all ports. Adapters return one; who created it
// closes it through the adapter's own Close.
type Backend struct {
	Locks     LockStore
	Sessions  SessionRegistry
	Waiter    ReleaseWaiter
	Handover  Handover
	Catalog   Catalog
	Feed      Feed
	Custodian Custodian
}
