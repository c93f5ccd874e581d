// Package reconcile compares what the parts of the payout system have written down, and repairs nothing but ambiguity for which there
// is evidence.
//
// It works beside executors that go on executing. What it reads is not of one moment, so it reads in an order in which a difference
// means something:
//
//  1. the rail's own listing, if it is named
//  2. payouts
//  3. submissions
//  4. the ledger
//  5. the rail's listing again
//
// A submission is on disk before the rail is called, its outcome before the payout's state shows it, and a payout is POSTED together
// with its entries. So what (1) has executed is in (3), a submission that a state in (2) tells of is in (3), the entries of what is
// POSTED in (2) are in (4), and what is acked in (3) is in (5). Whatever is missing there is missing. That (4) comes in pages, each of
// its own moment, changes nothing: what was posted before the first page is in one of them, and no account or payout is cut in two.
//
// The other way round a difference may only mean that somebody is at it. Those payouts are read again under their account's lock, when
// nobody else can be at it. Where the lock is not to be had within a few seconds, the payout is in work, and no finding.
//
// Under the lock it is also seen what a payout that was claimed, and not sent, waits for: its account's money, which the rail may have
// taken for others.
//
// Ambiguous payouts are resolved as an executor would: a lookup under the account's lock, and what the rail knows is written down.
package reconcile
