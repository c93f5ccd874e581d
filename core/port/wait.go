package port

import "github.com/fencelock/fencelock/core/lock"

// ReleaseWaiter tells waiters that a key may have become free.
type ReleaseWaiter interface {
	// Register notes interest in the key and returns at once, without asking the
	// store. observed is the token that the caller last saw in its way, 0 if none. The caller
	// registers first, then tries again, and only then waits: every end of a
	// grant that the store orders after that try fires the wake. A wake is a hint,
	// never a grant; spurious ones are allowed, but not from an extension or an
	// unrelated write (clause WAIT-03), beyond at most one when the store's notification
	// stream (re)starts.
	Register(key lock.Key, observed lock.Token) Wake
}

// Wake is one registration.
type Wake interface {
	// Fired receives a value, or is closed, once the key may be free. One pending signal at most.
	Fired() <-chan struct{}
	// Cancel ends the registration. It may be called more than once.
	Cancel()
}
