// Package outage takes the lock server away in the middle of the work and gives it back. While it is away nobody can be
// granted anything, so once what had been begun is written down nothing more may happen: no payout is executed without
// a lock. Afterwards the backlog drains by itself, and all invariants hold over the whole history.
package outage
