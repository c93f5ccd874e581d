// Package locks gives the locks of accounts, over the SDK: one session per process, opened when it is first needed and again after it
// was lost, and one lock per account in work.
package locks
