package payout

import (
	"context"
)

// Locks gives the locks of accounts.
type Locks interface {
	// TryAcquire asks for the lock of an account once, without standing in line. Errors: [lock.ErrHeld] if somebody else has
	// it, and those of a session and an acquire; whatever the error, there is no lock.
	TryAcquire(ctx context.Context, account string) (Lock, error)
}

// Lock is one grant.
type Lock interface {
	// Token is to be presented with every write.
	Token() Token
	// CheckStillHeld returns nil if at this moment nobody else can have the lock, else [lock.ErrLost].
	CheckStillHeld() error
	// Context ends when the lock is over.
	Context() context.Context
	// Release ends the grant, here at once, and there if it can be reached.
	Release(ctx context.Context) error
}

// Payments is the payment resource: accounts, payouts and the ledger. Writes are refused as [lock.ErrFencedOut] if the token
// is not good for the account's fence. A write that is sent again with the same token is answered as the first time.
// Further errors: [lock.ErrContention] where no answer came, [lock.ErrInvalid], [lock.ErrDenied], and [*RefusedError].
type Payments interface {
	// Get reads a payout and its account.
	Get(ctx context.Context, id string) (Picture, error)
	// Claim is the first write of a grant; it raises the account's fence to the token.
	Claim(ctx context.Context, token Token, ref Ref) (Picture, error)
	// Advance moves a claimed payout from one state to the next.
	Advance(ctx context.Context, token Token, step Step) (Payout, error)
	// Post writes the ledger's entries and the account's new balance.
	Post(ctx context.Context, token Token, ref Ref, balanceAfter int64) (Picture, error)
}

// Step is one move of a payout.
type Step struct {
	Ref

	From, To State
	// Reference of the transfer, for StateRailAcked.
	Reference string
	// Reason, for StateFailed, StateAbandoned and StateRailAmbiguous.
	Reason string
}

// Rail stands before the payment rail. It refuses tokens below the highest that it has seen for the account. Errors are
// those of [Payments].
type Rail interface {
	// Submit sends a payout to the rail, at most once in all. An error other than a refusal says nothing about whether it was sent.
	// It must never be called a second time for an unknown outcome.
	Submit(ctx context.Context, token Token, p Payout) (Submission, error)
	// Lookup tells what is known of a payout's submission, and raises the mark to the token: if there was none, no holder of
	// an older token can make one.
	Lookup(ctx context.Context, token Token, ref Ref) (s Submission, there bool, err error)
}

// Observer is told what executions do. It must be quick.
type Observer interface {
	Observe(ctx context.Context, event Event)
}
