// Package cancel ends calls to PostgreSQL whose context has ended, and keeps their connections.
//
// A commit that waits for a synchronous standby does not fail when it is cancelled: the database stops waiting and reports success,
// with a warning, though a failover can undo what it has committed. So whoever cancels must hear that warning: [NoteUnconfirmed].
package cancel
