// Package executor puts the program together: what talks to the services, the pool that executes payouts, the doors for those who
// look after it, and the order in which all that starts and stops.
package executor
