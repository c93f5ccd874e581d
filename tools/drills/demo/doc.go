// Package demo runs the payout system from beginning to end: accounts and payouts are made up, executors pay them out
// while nothing is done to anybody, and everything is judged afterwards. What is healthy is exact: every payout is in
// the ledger, the rail got one request for each, all invariants hold, and the counters of refused writes and repeated
// submissions are 0, and were there to be seen from the first scrape on.
package demo
