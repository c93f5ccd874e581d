// Package account keeps accounts, payouts and the ledger in PostgreSQL: the resource that the lock of an account protects.
//
// # The fence
//
// Each account has a fence, the highest token that has claimed. The lock of an account is the key "payout:" and its id.
// A grant writes in this order, each write one transaction that holds the account's row:
//
//   - Claim, the first write, needs a token above the fence and raises it. What it returns is true until a newer grant claims.
//   - Advance and Post, the later writes, need a token that equals the fence, and the state of the payout that the caller names. So a
//     holder that was paused, and comes back after another has claimed, changes nothing.
//
// Between the answer of one write and the sending of the next anything may happen to the caller; the check is part of the write's own
// transaction, so nothing can come between the two.
//
// A write that is sent again since its answer was lost is answered as the first time. It is known by its token: the payout's
// last claim was by it, or the payout is in the new state already, written by it.
//
// # The balance
//
// Post writes the balance that its caller computed from what Claim had returned. That is a read-modify-write in the hands of a
// client, which is what locks are for. It is refused unless it is the balance of this moment less the amount, as it is where the
// caller has not lost its lock. The ledger's entries are what it is compared with.
//
// A payout is sent only if the balance covers it, without what the rail may have taken for others of the account and the ledger does
// not show yet. Once the rail has taken it, it is posted whatever the balance becomes: the ledger tells what has happened.
//
// # With fencing off
//
// The store trusts its callers as one does that relies on a lock alone: neither fence, actual state nor balance is compared. It exists
// to show the harm: a stale Post makes four entries instead of two, and a balance that is not what the entries add up to.
// Transitions that are in no list, and claims of payouts that are over, are refused in both modes.
package account
