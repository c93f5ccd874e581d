// Package model is the payout system around the executor, in memory, for tests: [World] keeps accounts, payouts, ledger,
// submissions and the rail, serves PaymentService and RailService as their contracts say, and can lose calls on the way. What it was
// asked and what it did stays written down, so that [World.Faults] can say what was wrong with it.
package model
