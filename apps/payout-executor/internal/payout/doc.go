// Package payout executes one payout under the lock of its account: the state machine, over three ports.
//
// # The order
//
//	acquire the lock       payout:<account>
//	read the payout        it may be over by now
//	claim                  raises the account's fence to the token: no older holder writes from here on
//	-> RAIL_SUBMITTED      written before the rail is called
//	submit                 once, never again
//	-> RAIL_ACKED, FAILED or RAIL_AMBIGUOUS
//	post                   the ledger's entries and the new balance
//	release                after all that has ended
//
// Before each step that begins something (claim, the move to RAIL_SUBMITTED, submit) the lock is asked whether it is still
// held, and the execution ends if not. That is no guarantee: between the answer and the write anything may happen. The token
// goes with every write, and the fences decide.
//
// Once the rail was called, what it did is written down whatever becomes of the caller and of the lock, for a bounded time: money
// has left, and giving up would not bring it back. These writes start nothing new, and a newer holder's fence refuses them.
//
// # Recovery
//
// What to do with a payout that an earlier holder has left behind follows from its state and from the record of its
// submission, never from how long ago that was:
//
//	PENDING, CLAIMED   nothing was sent: go on to RAIL_SUBMITTED; while the rail may have taken the account's money for others: it waits
//	RAIL_SUBMITTED     look up, which keeps older holders from submitting any more;
//	                   no submission: submit; acked: RAIL_ACKED, post; rejected: FAILED; no outcome: RAIL_AMBIGUOUS
//	RAIL_AMBIGUOUS     look up; acked: RAIL_ACKED, post; rejected: FAILED; else it stays so
//	RAIL_ACKED         post, again and again until it is POSTED
//
// # What is tried again within a grant
//
// Reading, claim, moves, post and lookup: the services answer the same call by the same token as the first time. Submit is not.
// If its answer does not come, the record is looked up under the same token. If there is none, the call may still be on its way,
// and the token that it carries is still good: the payout is left, and the next grant's lookup settles whether there will ever be
// one.
package payout
