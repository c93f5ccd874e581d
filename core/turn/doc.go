// Package turn lets callers work on one name at a time, within one process, first come, first served.
//
// It decides nothing between processes; what must be so there is for a store to see to. What it is good for: an admitted write has
// ended before the next one is asked for, and many calls about one row do not take all connections of a pool while they
// wait for each other, since who waits for a turn holds nothing.
package turn
