// Package server composes the lock server: a store, the core service over it, the RPC handler, the admin
// endpoint and what looks after them, as one fx graph.
//
// The order of starting is the order of dependence, and stopping is its reverse: first the doors close
// and what is in flight ends, then the service, then the store. Sessions and grants outlive
// all of it; they are the store's.
package server
