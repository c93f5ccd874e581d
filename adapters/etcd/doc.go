// Package etcd keeps Fencelock's sessions, grants and revocations in etcd. This is how, and why it
// holds. A [Store] keeps nothing that it could not lose: any number of them share one etcd.
//
// # What stands in etcd
//
// All under one prefix, as short JSON. No key holds a session's id, which is a secret: etcd logs keys.
//
//	s/<hash>         a session: id, owner, TTL        on the session's lease
//	g/<ns>/<key>     a grant: session, request, base  on the session's lease
//	x/<ns>/<key>     the lease of a grant, if it has  on a lease of its own
//	f/<ns>/<key>     the floor of a key
//	a/<ns>/<id>      an audit record; no namespace where all are concerned
//	meta             the base of all tokens
//
// # Sessions
//
//  1. A session is one etcd lease. Its record and all its grants hang on that lease, so the end
//     of the lease, by expiry or by CloseSession, frees everything in one step that etcd itself takes.
//  2. Since the record is in etcd, with its lease, every Store can serve every session, and a
//     Store that dies takes none with it. What a Store remembers of sessions only saves a read: every Txn
//     compares the lease in the store.
//  3. A session lives while its record stands. That, read linearizably, is the one test behind every
//     [lock.ErrSessionDead]; a keepalive that finds no lease is only the reason to look.
//  4. Nothing renews a lease but a client's heartbeat. A keepalive in the background would keep
//     the locks of dead clients for ever.
//
// # Keepalives
//
// A heartbeat sends one keepalive over a stream that all sessions of the Store share; heartbeats of one
// session ride together. The answer guarantees TTL from the moment of sending, since nothing is
// known about when the store handled it.
//
// The server handles such a stream one keepalive after another, and one for a lease that has
// run out and is not revoked yet waits for that revocation, with all that is behind it: for seconds
// where many die together. So a session rides the shared stream only while its guarantee is known to be
// longer than a second. For another one the Store first asks how long the lease has left, which never
// waits; that is a guarantee too. What is then still close to its end takes one of a few side streams, where it
// can delay nobody else. A shared stream that is silent for half a second is replaced, and its
// heartbeats are sent again, unless they have become older than a second: a late renewal would revive a
// session whose client may have been told of its death.
//
// While the store cannot be asked, a heartbeat is a retryable error, unless more than half
// of the TTL is still guaranteed: then that is the answer.
//
// # Grants
//
//  1. The token is base + ModRevision of the grant's key, that is, the revision of the Txn which
//     granted. etcd's revisions only grow, so tokens of a key do. The key is written by a
//     grant and a handoff and by nothing else: an extension must not change the token.
//  2. A grant is one Txn: if the key has no grant, and the session's record is on the lease, and
//     meta is unchanged, then put; else return what stands there. The else branch makes the refusal
//     as fresh as the attempt, and shows a repeated request its own grant (clause LOCK-04).
//  3. Release, handoff, extension and revocation are Txns that compare the ModRevision
//     (that is, the token), and the lease of the key (that is, the session). There is no
//     unconditional delete.
//  4. The lease of a grant is a key on an etcd lease of its own, so the store alone decides
//     when it has lapsed. Each put of a grant puts or deletes that key, so while a grant stands, the
//     key beside it is that grant's. A grant that says it has a lease and has no such key is over:
//     everyone treats it so, nobody needs to sweep, and the next acquirer puts over it. The value of a grant
//     begins with a letter that says which kind it is, so a Txn can compare that.
//  5. An extension puts the key on a new lease if that ends later than what is left, and ends the old one a
//     few seconds later. So that a lease is gone is only the reason to look at the key again.
//  6. A handoff is a put over the grant: etcd does not delete and put one key in one Txn.
//  7. A lost answer leaves the outcome open; the error says so, and the client library does not repeat a
//     Txn by itself unless it surely was not sent. A lease that an open outcome may use is left alone.
//
// # Waiting
//
// A watch opened at the revision of a failed attempt would miss nothing, and would be slow: whatever
// else was written meanwhile makes the server count it among those who lag behind, which it serves every
// 100 ms. So a Store has one watch over all deletions of grants and of their leases, open while anyone
// waits, and in step. A waiter registers, tries once more, and only then waits: a release before that try is
// seen by the try, one after it by the watch. While the watch is not in place yet, a registration gets
// one wake when it is. A broken watch resumes behind the last event; where that is compacted, everyone is
// woken. Waking is a hint, so that is never wrong.
//
// No call opens a watch: those of waiters and of the feed are few and live long. All watches of an in-process client
// share one stream, which blocks for ever where many are opened and ended at once. A watch
// that does not show what its Store has ended itself is stuck, and Ping says so.
//
// # Audit records
//
// The id of a record is the revision that its act looked at, and the act's Txn compares that none as new stands there. So
// ids are in the order of the acts. Keys hold them inverted: etcd reads upwards, and the newest are asked for.
//
// # Time travel
//
// A restored snapshot is a store that goes back: revisions, and so tokens, would come twice. etcd cannot tell;
// but a Store knows the highest token it has seen, in memory and in a file. An answer
// below what was seen before the question was sent stops grants and handoffs ([lock.ErrUnsafeStore]); all else
// goes on. Watches are opened anew then, since the client library would resume them at a revision that the store has
// not reached yet. RaiseFloor makes it safe: in one Txn it deletes every grant and raises the base so that
// base + revision is above any fence in use. The Txn of a grant compares meta, so
// no grant is made with the base of before.
//
// # Versions
//
// etcd before 3.5.14 is refused. Revisions could go back after a crash of a server, which
// repeats tokens; and a leader that had stalled could revoke leases that had been renewed.
//
// # Limits
//
// etcd revokes about a thousand leases a second. Where more sessions than that die in one
// moment, the last of them die that much later than TTL + 2 s. A leader that is newly elected gives each lease its full TTL again.
package etcd
