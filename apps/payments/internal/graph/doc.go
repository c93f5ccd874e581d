// Package graph composes the programs of the payout system, each as one fx graph.
//
// The order of starting is the order of dependence, and stopping is its reverse: first the door of the calls closes and what is
// in flight ends, then what still goes on without its callers, then the door of metrics and probes, last the database.
package graph
