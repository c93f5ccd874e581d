// Command bench measures the lock service on this machine and prints what it
// saw. It judges nothing: figures of one run are to be compared with figures of the
// same run only.
//
//	bench wake      how soon a release on one server wakes a waiter on another
//	bench grants    how many locks of their own callers acquire and release in a second
//
// Each is measured on a server of its own of etcd and of PostgreSQL, both with fsync on, one after the other in the same run;
// --backend=etcd or --backend=postgres measures one of them.
package main
