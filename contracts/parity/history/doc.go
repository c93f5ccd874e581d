// Package history records what callers of a store see, and judges whether one
// store with the promises of the parity suite can have answered so.
//
// A [Recorder] wraps the ports of any number of clients and notes each call
// with its interval on one clock. A write whose answer was lost stays open:
// it may take effect at any later time, or never.
//
// [Check] judges a history in rising order of cost:
//
//  1. Tokens. Per key, a grant that was answered before another was asked for
//     has the lower token; each token names one grant (clause LOCK-02).
//  2. Sessions. Nothing succeeds that was called for a session after an answer
//     had proved it over (clause SESS-03).
//  3. Order. Per key, porcupine looks for an order of the calls, each within
//     its interval, that a fenced lock can have followed.
//
// The fenced lock of the third step has no operation for the silent end of a
// grant, by a session's death or a lapsed lease. Such an end is lazy: its only effects are
// that the key is free and that later calls of the session fail, so
// it can be moved later until a call needs it, and is applied there if time allows: a session
// cannot die before what its last confirmed heartbeat guaranteed, and a
// lease cannot lapse before its length has passed since it was asked for. Once an
// end is applied, no call that returned before the earliest moment of that end may follow.
//
// What it cannot see: that something ends too late (the suite measures
// that), reads that promise nothing (clause LOCK-10; they are not recorded), and
// a raised floor, which ends grants of keys that a history may not know: record none.
package history
