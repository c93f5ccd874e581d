// Package feed passes a store's events on to subscribers, of which any may be slow. It is the half of a
// [port.Feed] that no store needs to write for itself; where the events come from is the adapter's.
package feed
