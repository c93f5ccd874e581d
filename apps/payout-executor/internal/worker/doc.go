// Package worker brings payouts from the backlog to the executor. Any number of processes may do so at once; nobody tells them who does
// what.
//
// A poll lists what is not over, oldest first, and sorts it by account. The accounts of a poll are shuffled: processes that polled the
// same page begin at different places. Each account in turn gives its first payout: what somebody has begun, then the oldest. One payout of
// an account is in work at a time, so accounts share the places fairly, however many payouts one of them has.
//
// Nobody waits for a lock. Who finds an account locked, or a payout of it done by somebody else, leaves that account to them until
// the next poll, so processes that met there part. Who has run out of accounts polls again soon, as long as there is progress.
//
// An execution that was left makes its account wait, longer each time. A payout that was refused for good or whose fate is not known
// makes only itself wait: those after it are not to blame. Ambiguous payouts are listed by themselves and less often, so that they
// never stand in the way of the others.
package worker
