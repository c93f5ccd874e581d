// Package service holds the use cases over the ports: sessions, acquire with
// wait, release with handoff, revocation, inspection, and news for clients. It is the same over every
// store, and everything that it promises rests on the store's own decisions: the queues, wakes and feeds
// here only decide when the store is asked.
//
// # Waiting
//
// Each key that somebody waits for has a line on this server, first come first served. Only the
// head of a line contends in the store, in the goroutine of its own caller; the others cost a channel each.
// The head registers for a wake, then tries, and only then waits, so no release falls between.
// It tries again on a wake, when the holder can be dead at the latest, when this server itself has
// ended the grant, and, as a fallback, on a jittered poll.
//
// A wait ends with a grant, or with held once its time is over, or with an error. Held is said
// only of a live session and only by a store that can be asked, so a call that did not hear it from the
// store just now asks once more; that also finds a grant whose answer was lost. Where a grant
// may have been made, or may yet be made, the answer is an ambiguous error instead.
//
// # Handoff
//
// A release whose key has a line hands the grant to the head in one step of the store. The outcome
// is one of four: it happened; the waiter's session is dead, then the next one is tried; the grant
// was over before; or nobody knows. In the last case the store is asked for the waiter's request, and if
// it was not granted, the first grant is deleted: the handoff cannot happen after that, because it
// compares the token. All of it takes place within the one release call.
//
// After a number of handoffs in a row the release is a plain one and the line pauses for a few
// milliseconds, so that the waiters of other servers get their turn. The count follows the
// grant, not the line: two clients that pass a key to each other leave the line empty in between.
//
// # Who may withdraw a grant
//
// A caller that leaves takes its place in line with it, and nothing else. A grant made under its
// request id stays, because a retry on another connection may have learned of it; the client
// abandons the id, and an abandon awaits what this server still has under way for it.
//
// # Goroutines
//
// [Service.Start] begins a fixed number: one reads the feed, a few re-read sessions
// whose news may be incomplete, one keeps time. [Service.Close] ends them. There is none per session,
// waiter or watch. No lock is held across a store call.
package service
