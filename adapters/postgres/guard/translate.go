package guard

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/fencelock/fencelock/core/lock"
)

// SQLSTATEs, and classes of them, that say more than that nothing was done.
const (
	stateReadOnly  = "25006"
	classData      = "22"
	classRollback  = "40"
	stateNotLocked = "55P03"
	classLength    = 2
)

// translate turns what the driver says into the closed set. alone says that the statement would have committed by
// itself, so that a lost answer leaves its outcome unknown; inside the caller's transaction nothing is done before the commit.
func translate(err error, alone bool) error {
	if err == nil {
		return nil
	}
	if answer, ok := errors.AsType[*pgconn.PgError](err); ok {
		return translateAnswer(err, answer, alone)
	}
	message := "the marks could not be asked"
	if errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) || pgconn.Timeout(err) {
		message = "the marks did not answer in time"
	}
	_, unsent := errors.AsType[*pgconn.ConnectError](err)
	return lock.Contention(message, alone && !unsent, err)
}

// translateAnswer judges an error that the database sent. Only one that ends the connection leaves it open whether the
// statement was committed.
func translateAnswer(err error, answer *pgconn.PgError, alone bool) error {
	e := lock.Contention("the marks could not be asked", alone && answer.SeverityUnlocalized != "ERROR", err)
	switch answer.Code {
	case stateReadOnly:
		e.Code, e.Message = lock.CodeNotLeader, "the marks can only be read: their database is a standby, or set to be read-only"
	case stateNotLocked:
		e.Message = "another transaction holds the mark"
	default:
		switch answer.Code[:min(classLength, len(answer.Code))] {
		case classRollback:
			e.Message = "another transaction has changed the mark"
		case classData:
			e.Code, e.Message = lock.CodeInvalid, "the columns of the marks cannot hold the resource or the token"
		}
	}
	return e
}
