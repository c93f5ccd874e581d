// Package command is the command line of the lock service: parsing, calls, output and
// exit codes.
//
// # Output
//
// Results go to standard output: tables for people, or with --json one object per line, in the JSON form of
// the wire contract (64-bit numbers are strings). Errors go to standard error as one line,
// with --json as {"error": {"code": …}}.
//
// # Exit codes
//
// The codes of lockctl itself start at 200, above those that commands, shells
// and timeout(1) use, because run passes the command's own code through:
//
//	0    done
//	200  the lock or the session is over (LOCK_LOST, SESSION_DEAD); run: the command was stopped for it;
//	     revoke: nothing to revoke
//	201  not acquired: someone else holds the lock (HELD)
//	202  unavailable: try again later (CONTENTION, NOT_LEADER, TOO_MANY_WAITERS)
//	203  bad usage or input (USAGE, INVALID)
//	204  refused (DENIED, UNSAFE_STORE, FENCED_OUT)
//	205  doctor: a check failed
//	206  anything else (ERROR)
//	126, 127, 128+n  run: the command could not be executed, was not found, ended by signal n;
//	                 128+n also where lockctl itself was interrupted before anything ran (INTERRUPTED)
package command
