// Package parity is the behavioural suite that every backend passes, and the
// promises that it checks. [RunParity] has exactly one subtest per clause, named after it.
//
// A clause speaks of what a caller can see. Most are checked through the
// ports alone; those about waiting, lost answers and late duplicates drive
// core/service over the same ports. The suite knows no backend: it asserts on
// outcomes, on tokens, and on the closed error set.
//
// # Sessions
//
// SESS-01: Opening a session returns an opaque id that nobody can guess, of at
// least 128 random bits, and the time to live that the store granted: 2 s to 10 min, whole
// seconds rounded up, 15 s where the caller names none. Other values are invalid.
//
// SESS-02: A session lives at least as long as the answer to its last heartbeat
// guaranteed, which is close to its TTL, and is dead for every caller at once
// no later than TTL + 2 s after the last heartbeat that the store accepted,
// whatever becomes of the lock servers; the bound starts anew when the store changes its
// leader, or its clock is set. A server drops a heartbeat that it received more than 1 s
// ago, so that a thawed server revives nobody.
//
// SESS-03: A heartbeat answers alive, with the remaining time that the store
// has guaranteed, or dead. Dead is terminal and stable, and is the answer to every call with
// a well-formed id that has no live session, whether there ever was one or
// not; only a release or a withdrawal says false instead (LOCK-06), and a
// close says 0 (SESS-06). A malformed id is invalid. A store that cannot
// be asked is neither: that is a retryable error.
//
// SESS-04: A session that sends no heartbeats dies, whatever else is asked of or
// about it.
//
// SESS-05: The death of a session frees all its locks in one step: a listing
// shows all of them or none.
//
// SESS-06: Closing a session frees all its locks and returns how many; closing
// it again returns 0 and no error.
//
// SESS-07: The list of a session's locks is authoritative: it is read from the
// store and never lags behind an answer that any server gave before.
//
// SESS-08: A session survives the loss of any lock server: every other one can
// renew it and release its locks.
//
// SESS-09: A dead or unknown session is granted nothing, even if it dies between
// the request and the store's decision, or while it waits in a queue.
//
// # Grants
//
// LOCK-01: At any instant there is at most one grant per key, in the store's
// own order.
//
// LOCK-02: The tokens of a key strictly increase, across release, session death,
// revocation, restart, failover and concurrency. Gaps are allowed; tokens of different keys
// are not comparable.
//
// LOCK-03: The token is fixed when the grant is made; extending never changes it.
//
// LOCK-04: An acquire carries a request id, scoped to session and key. Sent again
// while its grant lives, it returns the same grant and token. Another request id of
// the same session finds the key held: a session does not re-enter.
//
// LOCK-05: Held comes with who holds the key, since when, and under which token.
//
// LOCK-06: A release compares key, session and token in the store, atomically.
// Anything else than the live grant returns false and changes nothing; that a
// grant is over is never an error here.
//
// LOCK-07: Extending a live grant with a lease moves its end later, never
// earlier; a live grant without one is returned unchanged; a grant that is over
// is lost. A blip is never lost.
//
// LOCK-08: A grant whose lease has lapsed is taken by the next acquirer with
// a higher token, without any sweeper having run; its holder can then neither
// extend nor release it, nor hand it over.
//
// LOCK-09: A handoff ends one grant and starts another, for a named session, in
// one atomic step, with a higher token. It fails as lost if the first is over
// and as dead if the second session is; then nothing has changed.
//
// LOCK-10: A read gives a plausible picture of a key; it is never usable for a
// decision.
//
// LOCK-11: Keys are exact: 1 to 255 bytes of [A-Za-z0-9._:@/+=-] without leading,
// trailing or double '/' and without a "." or ".." segment; "a" and "a/b" are
// independent, and so are namespaces ([a-z0-9-], 1 to 63 bytes). An owner has 1 to 64
// characters, metadata at most 16 pairs and 4 KiB. What breaks a rule is
// invalid before any store is asked.
//
// LOCK-12: An acquire that was cancelled or timed out leaves no grant behind once
// its client has withdrawn the request id. No server ever ends a grant because a call
// under its request id was cancelled: the client may know of it from elsewhere.
//
// LOCK-13: A late duplicate of an acquire, arriving after its grant was released,
// may create a grant that nobody knows. A heartbeat that says what its client
// believes to hold is told of it, so that it lives for two heartbeats at most.
//
// # Revocation
//
// REV-01: A revocation needs an operator and a reason of at least 8 characters.
// It ends the grant, raises the floor above its token and appends an audit record, in one
// atomic step, and names the previous owner, session and token. The next
// token is above the floor.
//
// REV-02: With an expected token it is a compare-and-revoke. A free key, like
// another token, is reported as not held and nothing changes.
//
// REV-03: The deposed holder is told at once; its extend is lost and its release
// returns false.
//
// REV-04: Revocations are listed, newest first, in pages. They survive the end of
// every session and server. A raised floor is listed likewise, in every namespace, also if
// it ended no grant.
//
// # Waiting
//
// WAIT-01: An acquire with a wait returns within the wait plus one round trip,
// granted or not.
//
// WAIT-02: The end of a grant wakes a waiter without its waiting for a poll, also
// if it falls between the failed attempt and the start of the wait, and on
// any lock server: a release, a withdrawal, a revocation, a lapse, the end of a session.
//
// WAIT-03: An extension or an unrelated write does not wake a waiter.
//
// WAIT-04: The waiters of one lock server are served first come, first served.
// Across servers no waiter starves.
//
// WAIT-05: Interruption ends a wait promptly and leaves nothing behind.
//
// # Failure
//
// FAIL-01: A store that cannot be reached, is slow, has no leader or lost the
// answer yields a retryable error, never lost, dead or held. Where the outcome is unknown the
// error says so, and a retry with the same request id is safe. An error that
// does not say so had no effect.
//
// FAIL-02: Nothing fails open, and no switch makes it.
//
// FAIL-03: When the fault has healed service returns without a restart, and
// LOCK-01, LOCK-02 and SESS-02 hold over the whole history.
package parity
