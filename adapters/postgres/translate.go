package postgres

import (
	"context"
	"errors"
	"slices"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/fencelock/fencelock/core/lock"
)

// errRowLocked is in the chain of causes where a statement gave up waiting for a row that another transaction holds.
var errRowLocked = errors.New("another transaction holds the row")

// access says what a call could have changed if its answer is missing.
type access bool

const (
	reads  access = false
	writes access = true
)

// SQLSTATEs that mean more, or something else, than their class.
const (
	stateLockNotAvailable   = "55P03"
	stateReadOnly           = "25006"
	stateQueryCanceled      = "57014"
	stateCannotConnectNow   = "57P03"
	stateDataCorrupted      = "XX001"
	stateIndexCorrupted     = "XX002"
	statePrivilege          = "42501"
	stateCompletionUnknown  = "40003"
	stateTransactionUnknown = "08007"
	stateUndefinedTable     = "42P01"
	stateUndefinedSchema    = "3F000"
	stateDuplicateSchema    = "42P06"
	stateUniqueViolation    = "23505"
	stateUndefinedObject    = "42704"
	stateProtocolViolation  = "08P01"
	severityError           = "ERROR"
	classLength             = 2
	messageNoAnswer         = "the store did not answer"
	messageLate             = "the store did not answer in time"
)

// verdict is what a SQLSTATE, or a class of them, means to a caller.
type verdict struct {
	code    lock.Code
	message string
}

// judge finds the verdict on a SQLSTATE.
func judge(state string) verdict {
	switch state {
	case stateLockNotAvailable:
		return verdict{lock.CodeContention, "another transaction holds the row"}
	case stateReadOnly:
		return verdict{lock.CodeNotLeader, "the store can only be read from: it is a standby, or set to be read-only"}
	case stateQueryCanceled:
		return verdict{lock.CodeContention, messageLate}
	case stateDataCorrupted, stateIndexCorrupted:
		return verdict{lock.CodeContention, "the store reports corruption"}
	case statePrivilege:
		return verdict{lock.CodeContention, "the store refuses what the server's role has no right to"}
	case stateCannotConnectNow:
		return verdict{lock.CodeContention, "the store is starting up or shutting down"}
	}
	switch state[:min(classLength, len(state))] {
	case "08":
		return verdict{lock.CodeContention, "the connection to the store broke"}
	case "28":
		return verdict{lock.CodeContention, "the store refuses the server's role, or its password"}
	case "3D":
		return verdict{lock.CodeContention, "the store has no such database"}
	case "40":
		return verdict{lock.CodeContention, "the store gave way to another transaction"}
	case "42", "3F":
		return verdict{lock.CodeContention, "the store has not the tables that this server needs"}
	case "53", "54":
		return verdict{lock.CodeContention, "the store is out of resources"}
	case "57":
		return verdict{lock.CodeContention, "the store ended the connection"}
	case "58", "XX", "F0":
		return verdict{lock.CodeContention, "the store reports an internal error"}
	}
	return verdict{lock.CodeContention, "the store refuses the request"}
}

// translate turns what the driver says into the closed set. It never yields lost, dead or held: those are answers
// of the store, not failures to get one (clause FAIL-01).
//
// The outcome of a write is unknown where the connection broke, or the call ended, after the statement was sent. An error that
// the database sends as the answer is none of that: the statement, or the transaction that it would have committed, is undone.
func translate(err error, did access) error {
	if err == nil {
		return nil
	}
	if ours, ok := errors.AsType[*lock.Error](err); ok {
		return ours
	}
	if answer, ok := errors.AsType[*pgconn.PgError](err); ok {
		return translateAnswer(err, answer, did)
	}
	message := messageNoAnswer
	if timedOut(err) {
		message = messageLate
	}
	return lock.Contention(message, bool(did) && !unsent(err), err)
}

func translateAnswer(err error, answer *pgconn.PgError, did access) error {
	v, cause := judge(answer.Code), err
	if answer.Code == stateLockNotAvailable {
		cause = errors.Join(errRowLocked, err)
	}
	return &lock.Error{
		Code: v.code, Message: v.message, OutcomeUnknown: bool(did) && !undone(answer) && !unsent(err), Cause: cause,
	}
}

// undone reports whether the answer says that nothing was carried out. What ends the connection may have come
// between a commit and the answer to it.
func undone(answer *pgconn.PgError) bool {
	severity := answer.SeverityUnlocalized
	if severity == "" {
		severity = answer.Severity
	}
	return severity == severityError && answer.Code != stateCompletionUnknown && answer.Code != stateTransactionUnknown
}

// unsent reports whether the statement surely has not reached the database, or was surely rolled back there. The driver says of a closed
// connection that it is safe to try again, also where it was closed since the answer did not come.
func unsent(err error) bool {
	_, connecting := errors.AsType[*pgconn.ConnectError](err)
	return connecting || errors.Is(err, pgx.ErrTxCommitRollback) ||
		pgconn.SafeToRetry(err) && !errors.Is(err, pgconn.ErrConnClosed)
}

func timedOut(err error) bool {
	return errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) || pgconn.Timeout(err)
}

// isState reports whether the database answered with one of the SQLSTATEs.
func isState(err error, states ...string) bool {
	answer, ok := errors.AsType[*pgconn.PgError](err)
	return ok && slices.Contains(states, answer.Code)
}
