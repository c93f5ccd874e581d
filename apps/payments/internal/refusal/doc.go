// Package refusal holds the errors of the payout system that the lock service's closed set (core/lock) does not have.
package refusal
