// Package judge decides from what the parts of the payout system wrote down whether its invariants held. It asks
// nobody: databases, the rail's own log, and log lines of lock servers and executors become an [Evidence], and
// [Judge] is a function of that alone, so that a planted fault shows that each check can fail.
//
// The invariants, and what breaks each:
//
//   - INV-01 one mutator per payout at a time: a write under a lower token after one under a higher.
//   - INV-02 at most one transfer per payout: two requests at the rail, or one of another amount.
//   - INV-03 the ledger balances: a group that is not two entries of one amount and its negative, an entry of a payout
//     that is not POSTED, a balance that is not opening plus entries, money at the rail that the ledger does not show.
//   - INV-04 tokens never repeat or go back: one token in two grants of a key, a lower token granted after a higher,
//     one token under which two payouts of an account were written.
//   - INV-05 no write below the fence: a token below the highest that the account, or its mark at the rail, had seen.
//   - INV-06 grants exclude each other: two sessions of one token, or a grant while another was certainly held.
//   - INV-07 no side effect without a grant: a token that no lock server granted for the account, a transfer that
//     belongs to no submission.
//   - INV-08 terminal states are terminal: a write after one, a step that is not listed, a state that the history
//     does not end in.
//
// Where evidence leaves room, as log lines of two processes do, a check counts only what is certain: it can miss, but
// it never blames a sound system. How much there was to look at is part of each [Finding]; a finding that looked at
// nothing does not hold.
package judge
