// Package client is the Go SDK of the lock service.
//
// A [Client] opens a [Session], which stays alive by heartbeats; a session
// acquires a [Lock], whose token must go with every write to what the lock
// protects. [Client.Do] does all of it around one function.
//
// # What the client believes, and why it may
//
// The store frees the locks of a session when it has heard no heartbeat for the
// session's time to live. The client must stop before that, even if the server
// hangs, the network swallows everything, or answers crawl. So it keeps a deadline of
// its own:
//
//	deadline = when the last answered heartbeat was sent + what its answer guaranteed x (1 - margin)
//
// It counts from the sending, because the store decided at some later time, so
// the guarantee cannot end sooner; when the answer came says nothing. The margin (30 %)
// covers clocks that run at different speeds and the time it takes to stop the work. The
// clock also runs while the machine is suspended, and is never compared with another
// machine's. A lock with a lease of its own has a second deadline, built in the
// same way; the earlier one counts.
//
// The deadline is compared on every use ([Lock.CheckStillHeld]), so a timer that
// fires late, or a process that was frozen, does no harm there. What a
// frozen process cannot do is notice, between the check and the write, that it was
// frozen: only the token, checked by the resource, covers that.
//
// Loss is final. An answer that comes after the deadline revives nothing, and a
// grant that is answered after the session's deadline is refused and withdrawn.
//
// # How calls survive
//
// Every acquire carries one random request id in all its tries, so a retry after a
// lost answer finds its own grant. A call that gives up withdraws its id after its last try has ended. A
// copy that a network delivers still later is found by the heartbeats: they carry
// a digest of what the session believes it holds, and what the store holds
// beyond that is released. If it is the grant of a call in flight whose connection died
// without a word, the call is made to ask for it again, so no key stays blocked for longer than two heartbeats.
//
// Over HTTP/2 all sessions share one stream, which carries many operations in one frame and
// brings news of revocations at once. Where HTTP/2 is not to be had the same
// operations go as unary calls, and news comes with the heartbeats. A heartbeat that
// fails on the stream is tried at once over another connection and the next endpoint.
//
// # Errors
//
// Errors are those of package lock: errors.Is(err, lock.ErrLost),
// lock.IsRetryable(err), lock.IsAmbiguous(err). A contended key is a [*HeldError]. A call that its
// context ended also matches the context's error.
package client
