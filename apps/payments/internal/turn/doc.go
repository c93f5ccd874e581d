// Package turn lets callers work on one name at a time, within one process.
//
// It keeps many calls about one row from taking all connections of a pool while they wait for each other there: who waits for a turn
// holds nothing. It decides nothing; what must be so is for the database to see to.
package turn
