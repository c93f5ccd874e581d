package command

import (
	"errors"
	"os"
	"syscall"

	"github.com/fencelock/fencelock/core/lock"
)

// Exit codes; the package documentation gives their meaning.
const (
	codeLost        = 200
	codeNotAcquired = 201
	codeUnavailable = 202
	codeUsage       = 203
	codeRefused     = 204
	codeUnhealthy   = 205
	codeOther       = 206
	codeSignal      = 128
)

// exitError ends the program with a code. Without a message nothing is left to be said.
type exitError struct {
	code    int
	message string
}

func (e exitError) Error() string { return e.message }

// silent reports whether err is a mere exit code.
func silent(err error) bool {
	exit, ok := errors.AsType[exitError](err)
	return ok && exit.message == ""
}

// usageError is a command line that does not parse.
type usageError struct{ cause error }

func (e usageError) Error() string { return e.cause.Error() }

// signalError is an interruption by a signal.
type signalError struct{ signal os.Signal }

func (e signalError) Error() string { return "interrupted by signal: " + e.signal.String() }

// exitCode is the one table from errors to exit codes.
func exitCode(err error) int {
	var exit exitError
	var interrupted signalError
	switch {
	case err == nil:
		return 0
	case errors.As(err, &exit):
		return exit.code
	case errors.As(err, &interrupted):
		number, _ := interrupted.signal.(syscall.Signal) // all are
		return codeSignal + int(number)
	case errors.As(err, new(usageError)):
		return codeUsage
	}
	switch lock.CodeOf(err) {
	case lock.CodeLost, lock.CodeSessionDead:
		return codeLost
	case lock.CodeHeld:
		return codeNotAcquired
	case lock.CodeContention, lock.CodeNotLeader, lock.CodeTooManyWaiters:
		return codeUnavailable
	case lock.CodeInvalid:
		return codeUsage
	case lock.CodeDenied, lock.CodeUnsafeStore, lock.CodeFencedOut:
		return codeRefused
	}
	return codeOther
}
