// Package stack runs the whole payout system as processes on loopback: a lock server over one of the stores, the rail,
// the proxy before it, the payment resource, and executors. Executors reach the two services through a gate each,
// which can keep a call back. Databases come from the test environment: one for the payments, one for the proxy, and a
// third for the locks where they are kept in PostgreSQL.
//
// What the parts wrote down is collected into the evidence of package judge: tables and ledger through the services' own
// listings, transfers from the rail, grants and releases from the log lines of the lock server, uses from those of the
// executors.
package stack
