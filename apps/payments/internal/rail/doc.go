// Package rail is the proxy before a payment rail that cannot tell a repeated transfer from a new one.
//
// # The order of a submission
//
//  1. One transaction: the account's mark is raised to the token, which must not be below it, and the intent is inserted, of
//     which there can be one for each payout. Its commit is what makes the submission the only one.
//  2. The transfer is sent to the rail, once. It has a time limit of its own and goes on when the caller leaves.
//  3. The outcome is written, where none is.
//
// If the proxy dies between 1 and 2, or between 2 and 3, or the rail's answer is lost, the intent stays without an outcome. The
// rail may have executed it or not, and nobody sends it again, ever: the unique payout is in the way. Only evidence can settle
// it: the rail's own read-only lookup.
//
// # Lookup
//
// A new holder of the account's lock must know what its predecessor has sent before it may send. Lookup raises the mark in the
// same transaction in which it reads: where it finds no submission, none can be made by anyone with an older token. Where it
// finds one that this proxy is still sending, it waits for the end of that.
//
// # With fencing off
//
// The proxy is a bare forwarder: neither mark nor uniqueness, each call is sent. It exists to show the harm.
package rail
