// Command bench measures the lock service on this machine and prints what it
// saw. It judges nothing: figures of one run are to be compared with figures of the
// same run only.
//
//	bench wake    how soon a release on one server wakes a waiter on another
package main
