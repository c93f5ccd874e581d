// Package fence is the side of the resource: it refuses a writer whose token is not good any more.
//
// # Why a fence
//
// A lock tells its holder that it holds, and the holder then writes. Between the two anything may happen: the holder is
// paused, its packet waits in a queue, its session dies, another one is granted the lock and writes. Then the
// first one's write arrives. No lock service can prevent that, since the write does not pass through it. What it
// can do is to number its grants: each grant of a key has a token above those of all grants before it. The writer sends the
// token along, the resource remembers the highest one that it has admitted, its mark, and refuses what is below. From
// the first write of the newer holder on, nothing of an older one gets through, however late it comes.
//
// The mark protects from the first write of the newer holder, not from its grant. If a newer holder reads, thinks,
// and writes, an older one may still write in between. So the newer holder raises the mark before it reads what
// it builds on, or in the same transaction. What it has read then stays true until a newer one comes.
//
// # Three rules
//
// The tokens of one grant are equal, and a grant writes more than once. What the mark must be depends on which write it is.
//
//   - [Above] is for the first write of a grant: the claim. The token must be above the mark, and becomes it. Who
//     comes with it has read nothing of the resource yet that it relies on.
//   - [Equal] is for all later writes of the grant. The token must be the mark. That says two things: nobody newer has
//     come, and this grant's own claim was admitted, so what it read since is true.
//   - [NotBelow] is for writes of which none is known to be the first, and which do not build on what was read before the
//     mark was raised: the resource is asked once per grant, say, and the question may be repeated.
//
// What goes wrong with another choice:
//
//   - Above for every write: the second write of every grant is refused. So is the repetition of a first write whose
//     answer was lost: the resource has admitted it, the caller does not know, and is told that it is fenced out. That
//     harms nobody, but it costs the grant. A resource that wants to answer repetitions recognises them by what it
//     wrote ("claimed by token 33") before it asks the guard.
//   - NotBelow for the claim: a second claim by the same grant is admitted, such as a copy that the network delivers late, in
//     the middle of the work that the first one began.
//   - NotBelow for the later writes: a holder that read before it raised the mark is not found out. 34 reads the
//     balance; 33, still awake, changes it; 34 writes what it computed from the old one, and is admitted, being above. One
//     of two changes is gone.
//   - Equal for the claim: nothing is ever admitted, since no token is the mark before it was admitted.
//   - Equal without a lock on the mark: 33 is found equal; 34 raises the mark and writes; then 33 writes. A check by
//     Equal changes nothing, so a store that locks what it changes does not lock the mark. The [HighWater] must.
//
// # One step with the write
//
// Check and write must be one step for the store that holds both: one transaction. A check before the write leaves a window as
// long as the pause between the two, and a pause is what all this is about. The guards for PostgreSQL
// and etcd put the mark into the transaction of the write. Where the resource has no transactions, the writes of one resource must
// at least be let through one by one, so that an admitted write has ended before a newer token is admitted;
// that holds within one process only, and only if a write that was given up has really ended.
//
// # One resource, one key
//
// Tokens of different keys say nothing about each other: 1000 of one key may be older than 7 of another. A resource
// that is written under two keys has two orders and no fence: the key with the higher numbers locks the other
// one out. Each resource belongs to one key, in one namespace, of one lock service; a key may protect many resources,
// each with a mark of its own. A new lock service, or another store behind it, begins its numbers anew: raise its floor above every
// mark first ("lockctl floor raise").
//
// # Revocations
//
// A revocation ends a grant, and the holder may not know. Until the next holder writes the mark is still the revoked one's, so its
// writes are admitted; if nobody wants the lock, for ever. Each revocation has a floor: a number above the token that it
// ended and below all that are granted later. A [Follower] raises the mark of the resource to it. Then no rule admits the revoked
// token, and every rule that would have admitted the next one still does. It looks again and again at what is on record, rather
// than to wait for news: a record stays, so one that comes late, or back, misses nothing.
//
// # Made-up tokens
//
// A token is a small number, no secret. Who may write to the resource may write any number beside it. A number too low is
// refused. A number too high is admitted and raises the mark, and from then on every true holder is refused: the highest
// int64 locks everyone out for good. So either trust all writers not to make numbers up ([Unsigned]), or have
// the lock service sign what it grants, and believe nothing else ([Verifier]). The signature binds namespace, key,
// number and session: a token of one key is worth nothing at another.
//
// A signed token does not expire, since a fence is about order and not about time. A number that was signed was really
// granted for this key, so it is not above the newest grant and can lock nobody out who comes later. Who steals a
// signed token has what its holder had: the power to write until the next holder does. An expiry would add that a
// resource with a wrong clock refuses the true holder, and that a long work needs new tokens; it would end nothing
// that the next grant does not end.
//
// To reset a mark that a made-up number has raised, write it as what it is, something that the lock protects: acquire the lock, set
// the mark to the token of that grant, release. Everything older stays refused, everything newer is above. The commands
// for each guard are in docs/fencing.md.
package fence
