package database

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/fencelock/fencelock/apps/payments/internal/refusal"
	"github.com/fencelock/fencelock/core/lock"
)

// translate turns what the driver says into the closed set. committing says that the database was asked to commit.
func translate(err error, committing bool) error {
	if err == nil || lock.CodeOf(err) != "" || refusal.CodeOf(err) != "" {
		return err
	}
	if answer, ok := errors.AsType[*pgconn.PgError](err); ok {
		if !retryable(answer.Code) {
			return err // a bug of ours, or somebody changed the tables
		}
		// An answer of that severity says that the transaction was undone; a connection that the database ends may have committed.
		return lock.Contention("the database gave the transaction up", committing && answer.SeverityUnlocalized != "ERROR", err)
	}
	message := "the database did not answer"
	if pgconn.Timeout(err) || errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) {
		message = "the database did not answer in time"
	}
	return lock.Contention(message, committing && !errors.Is(err, pgx.ErrTxCommitRollback), err)
}

// retryable reports whether a SQLSTATE speaks of the moment and not of the statement. Those that stand for themselves: a row
// that another transaction holds, and a standby, which can only be read from.
func retryable(state string) bool {
	if state == "55P03" || state == "25006" {
		return true
	}
	switch state[:min(2, len(state))] {
	// Connections, credentials, transactions that gave way, resources, operators, the system.
	case "08", "28", "3D", "40", "53", "54", "57", "58", "XX":
		return true
	}
	return false
}
