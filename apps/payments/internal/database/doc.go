// Package database is what the stores of the payout system share: a pool of connections, transactions whose errors are of the
// closed set of core/lock, and migrations that any number of processes may begin at once.
package database
