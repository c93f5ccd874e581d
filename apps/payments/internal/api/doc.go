// Package api serves the wire contract fencelock.payments.v1 over the stores of the payout system, and holds the one table from their
// errors to those of the wire.
//
// Writes under the lock of an account carry the lock's token in a header. The key of the lock is made from the account that the
// message names, and so the signature of a token is good for that account alone; that the payout is of that account is for the
// store to check.
package api
