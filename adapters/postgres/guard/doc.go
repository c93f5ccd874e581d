// Package guard puts a fence into PostgreSQL: the mark of a resource is raised in the transaction that writes to it.
//
// # Use
//
// Begin a transaction, ask the guard first, then read and write, and commit:
//
//	marks := guard.NewColumn(guard.Column{Table: pgx.Identifier{"account"}, ID: "id", Mark: "fence"})
//	…
//	err := pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
//		if err := fence.New(marks.In(tx)).Admit(ctx, account, token); err != nil {
//			return err // also rolls back
//		}
//		_, err := tx.Exec(ctx, "UPDATE account SET balance = …")
//		return err
//	})
//
// The marks stand in a column of the caller's own rows ([NewColumn]), where each resource is one row, or in a table of
// their own ([NewTable]). Which rule is right when is said in core/fence.
//
// # Why it holds
//
// Every decision is one UPDATE whose condition compares the token with the mark. Where another transaction has changed
// or locked the row and is still open, the statement waits for its end, and then
// PostgreSQL compares again, with what that transaction has committed. Once a token is admitted, the row stays locked until
// the caller's transaction ends: a newer token, on whatever server, waits for the commit, so what
// it reads after its own admission includes all that older ones have written.
//
// Also the rule Equal updates the row, though the mark stays as it is. A lock alone would do at the level READ COMMITTED.
// At REPEATABLE READ it would not: a newer holder that has waited for a row which was locked, but not changed, goes on
// with the picture that it took before it waited, in which the older one's last write is missing.
// A row that has changed makes PostgreSQL end that transaction with a serialization failure, which is a
// retryable error here. So the guard is right at all levels; READ COMMITTED, the default, needs no retries.
//
// # What to mind
//
//   - Ask the guard before the transaction reads what it builds on. What was read earlier may be from before the wait.
//   - After a refusal or an error, roll back. A transaction that was refused may hold the lock on the row.
//   - A transaction that needs several resources asks for them in one order everywhere, or two may wait for each
//     other; PostgreSQL then ends one with a retryable error.
//   - What waits is bounded by the context and by PostgreSQL's lock_timeout. By default pgx closes the connection of a
//     statement whose context ends.
//   - Nothing here needs a session, so transaction poolers are fine. Their clients use a query mode of pgx that
//     prepares nothing (exec or simple protocol), where the column's type must be given: [Column.IDType].
package guard
