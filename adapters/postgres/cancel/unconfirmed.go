package cancel

import "github.com/jackc/pgx/v5/pgconn"

// unconfirmed marks a connection whose last commit is on the primary and perhaps nowhere else.
const unconfirmed = "fencelock.unconfirmed"

// NoteUnconfirmed hears the database say that a wait for a synchronous standby was cancelled. It is for OnNotice of a
// connection, and needs client_min_messages to be warning or lower. The name of the source file is what tells this warning from
// others in every language.
func NoteUnconfirmed(conn *pgconn.PgConn, notice *pgconn.Notice) {
	if notice.File == "syncrep.c" {
		conn.CustomData()[unconfirmed] = true
	}
}

// TakeUnconfirmed reports whether that was heard on the connection since it was last asked. Ask once before a use of a connection that
// others have used.
func TakeUnconfirmed(conn *pgconn.PgConn) bool {
	_, heard := conn.CustomData()[unconfirmed]
	delete(conn.CustomData(), unconfirmed)
	return heard
}
