// Package postgres keeps Fencelock's sessions, grants and revocations in PostgreSQL. This is how, and why it
// holds. A [Store] keeps nothing that it could not lose: any number of them share one database.
//
// # What stands in the database
//
// All in the schema "fencelock", and named with it in every statement: a pooler keeps no search path.
// The tables describe themselves, as \d+ shows, and docs/contracts has the same text.
//
//	lock_session        a session: number, secret id, owner, TTL, when it was renewed, expires, has ended
//	lock_entry          a key: last token, floor, and its grant if it has one
//	lock_revocation     audit records
//	lock_meta           one row: the floor of all tokens
//	fencing_token_seq   the tokens
//	goose_db_version    the version of the schema, and goose_lock who migrates it
//
// # Sessions
//
//  1. A session is one row. It is dead if that has ended_at, or is not there; and all its locks with it, by a join, without
//     anything else having to be written.
//  2. That its time has run out is no death, only the reason to bury it: one statement locks the row, looks at
//     the time again, and sets ended_at. Whoever would answer "dead", or take a lock over, because time has run out, buries first
//     and then looks again.
//  3. A heartbeat locks the same row before it looks at the time. So it comes before a burial, which then does not
//     happen, or after it, and then finds the session dead.
//  4. Heartbeats have two connections of their own, and a grant never waits for a session's row while it has that of
//     a key: it skips a row that is locked, lets go of the key, and waits then. So no heartbeat stands behind acquires.
//  5. Whenever one of the two is free, all heartbeats that wait go in one statement, up to 500. So the way to the database does not
//     bound how many sessions live, and a lone one waits for no other. The statement skips rows that are locked; their
//     heartbeats come again, and then wait for their rows one at a time.
//  6. Where the database comes to a heartbeat more than two seconds after it was sent, as behind a lock on the table, it neither
//     renews nor buries: what the statement was told of the time is too old.
//
// # Grants
//
//  1. Every statement that changes a key's grant locks the key's row first, in a MATERIALIZED … FOR UPDATE expression, then
//     shares the row of the session that asks. That order is the same everywhere.
//  2. Numbers and times are taken after that, in the target list of the UPDATE that writes them. Anywhere else they can be
//     taken before a wait: in an UPDATE that itself waits for the row, in a sub-select, in an INSERT … ON CONFLICT. Then one who
//     waited gets a token below that of whoever it has waited for.
//  3. Tokens are numbers of one sequence without a cache, which is checked, so they rise for all keys at once; those of
//     one key rise in the order of its grants, since each is taken under the lock of its row.
//  4. A key has no row until somebody asks for it. Then one is made without a grant, and the grant is another
//     statement. A row that has been idle for an hour is deleted, under its lock. What has waited for it
//     meanwhile finds nothing, and begins anew.
//  5. The snapshot of a statement that waited for a row can be older than the row is then: the session of its
//     holder may be missing in it. So what one statement does not see is looked for by a second one before it counts as gone.
//  6. Statements run in READ COMMITTED. In a stricter level they would fail where these look at what is there now.
//  7. The outcome is unknown where the connection broke, or the call ended, after a statement was sent. An error as the answer is
//     none of that. The driver calls a closed connection safe to retry also where it was closed while an answer was
//     due, so that is not believed.
//
// Somebody else's transaction may hold a row for as long as it likes. The wait for it is short at first, then goes
// on in a slow lane that has a quarter of the connections; and one call waits for a row, the others of this
// Store behind it, without a connection. So one locked key delays its own callers alone.
//
// # Waiting
//
// One dedicated connection listens; waiting acquires hold none. A notification is sent where somebody waits only, as the commits of
// those who notify go one by one: a waiter's try marks the row, under its lock, and what ends the grant sees the mark, and
// notifies, in the same transaction. So an end before the try is seen by the try, and one after it is
// notified. Triggers do that, so it also holds for what somebody changes by hand.
//
// The end of a session is one notification. Each Store remembers which session its waiters were last told of, and wakes those, once
// for each time it is said. After a lost connection everyone is woken once it is back. Waking is a hint, so that is never wrong.
//
// A connection counts as listening once a random word, which the work's connections notify, has arrived by it; and that
// is tried again every few seconds. So one that leads to another database, to the primary of before, or through a pooler is noticed. Until
// another one hears, the Store looks at the tables a few times a second, as one without a direct connection does.
//
// # The clock
//
// The database's clock decides about expiry, and is a wall clock. So each Store follows it on its own monotonic one, by
// an estimate that is never ahead of it and comes after it at the pace of a drift.
//
//  1. A life is over once the database's clock and the estimate have both passed its end. If the database's clock is set
//     forward, the estimate stays, and nobody dies early.
//  2. A difference of more than a second is a step. The estimate then begins anew; and for one life's length nothing of
//     that length is over by time, so that everyone alive has sent a heartbeat by the new clock until then.
//  3. After a step back, a life that begins in the future by both clocks was not renewed since; once it has been watched for its
//     length it is over. By the database's clock alone it may have been renewed a moment ago.
//  4. Small steps add up: they count as one when they come to more than a second before drift could explain it.
//
// # Time travel
//
// After the restore of an old backup, or a failover to a standby that lagged, tokens would come twice. A Store knows the
// highest that it has seen, by its own grants and where each Ping finds the sequence, in memory and in a file, and each
// statement that would grant compares it with the sequence, as does the last token of the key itself. A database below it
// grants nothing until an operator raises the floor: handoffs stop as well, all else goes on. Raising the floor locks all keys' rows
// against changes for a moment, once who changes one has committed, lifts the floor and the sequence above everything that
// is known, and ends all grants. A Store that has stopped goes on once it sees a floor that is not
// below what it has seen. That the sequence has passed this by itself is not enough: other Stores, which had seen less, have given some of
// those tokens again.
//
// # What is refused
//
// PostgreSQL before 14; fsync, full_page_writes or synchronous_commit off, each of which lets a crash undo a grant that was
// answered, as do unlogged tables; a sequence with a cache; another encoding than UTF8 or SQL_ASCII; another isolation than READ COMMITTED,
// and client_min_messages=error, which only behind a pooler are not set here; and a standby. The
// same is asked with every Ping, since settings change, and a standby is [lock.ErrNotLeader], since it may be promoted.
//
// Each new connection is asked too, before its first use. A standby, which says of sessions and grants what it has
// replayed so far, is never asked for anything else: a URL with several hosts finds the primary by itself, whatever its
// target_session_attrs. A connection on which a write finds the database read-only is given up. What a role or a database is set
// to, only new connections have; after one was refused, Ping opens another to see whether that is over.
//
// Standbys of which none is synchronous are reported, not refused. With a synchronous one, a commit waits for it. When that wait is
// cancelled, by a call that ends or by hand, the database answers with success and a warning; here the outcome is unknown then.
//
// # Connections
//
// Each Store has the connections of its URL (pool_max_conns, at least 2, by default 4 or the number of processors),
// two for heartbeats, and one that listens. What a call has sent when it ends is cancelled in the database,
// and the connection is kept. One whose server is silent is given up after half a second.
//
// They search functions in pg_catalog alone, as the schema's triggers do: else who may create functions in a schema of the search path
// could make one that fits better than the one meant, and run it with the rights of the server.
//
// Behind a transaction pooler nothing may depend on a connection: there are no prepared statements, no settings at
// the start of a connection but application_name, and no LISTEN. Give the way around it as ListenURL; without one,
// waiters on other servers poll. IntervalStyle and DateStyle must be as they are by default there, and the pooler must lead to the
// primary alone: what is behind a connection may change after it was asked. pgbouncer
// should be 1.19 or newer: older ones crash when a client goes away at the wrong moment while it has
// something cancelled.
//
// # The schema
//
// Dial and [Migrate] bring it to the newest version, one server at a time. The lock for that is a row, which a pooler cannot
// lose, with a lease of a few seconds. A server that finds the newest version, or one that is newer still, writes
// nothing and needs no more than these rights:
//
//	GRANT USAGE ON SCHEMA fencelock TO role;
//	GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA fencelock TO role;
//	GRANT SELECT, UPDATE ON ALL SEQUENCES IN SCHEMA fencelock TO role;
//
// Servers of one version before run on with a newer schema during an upgrade, so a migration may add but not take away what that
// version uses.
//
// # Limits
//
// A failover to a standby that is not synchronous loses what it had not received: a grant that was answered, and
// its token. The Store that has seen that token then stops granting; one that has not cannot know.
//
// A Store that starts less than a life's length after the clock was set knows nothing of that, and judges as the clock says.
//
// Out of space, everything that writes fails, heartbeats too; so sessions run out as if the database were away.
package postgres
