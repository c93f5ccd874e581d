// Package guard runs a command in a process group of its own for as long as a
// lock is surely held, and returns only when no process of that group is left.
//
// # Two processes
//
// The program that holds the lock starts itself a second time as a small
// guardian (see [Main]), and the guardian starts the command. So the command is
// stopped in time also when the program that heartbeats the lock is frozen or
// killed: the guardian is then still there, and it stops the group when it has
// not been told of a later deadline. The reverse is covered too: if the guardian
// is killed or does not act, the program kills the group itself.
//
// The two talk over a pair of pipes, one JSON object a line. The guardian asks
// "how long is the lock still mine?", and counts the answer from the moment at
// which it asked. A late, stale or missing answer can therefore only make it stop
// the command too early, never too late, and no clock is shared.
//
// # When the group is stopped
//
// With a deadline D and a grace G: TERM at D - G, KILL at D - G/4, so that
// the whole group is gone at D. News that the lock is lost (a revocation, say)
// brings TERM at once and KILL three quarters of G later, or at D - G/4 if that is
// sooner. When the command itself has ended and left processes behind in its
// group, those get the same TERM and KILL, and only then the lock is given back.
// Signals to the program are passed to the whole group and nothing else: the
// command may take its time to end while the lock stays held.
//
// # Limits
//
// A process that leaves the group (setsid, an interactive shell's job, a
// service manager, a container) is not followed. A process in an uninterruptible
// system call, or one that this user may not signal, cannot be killed; the lock
// is then not released, but it can still be lost. If program and guardian are both
// killed with SIGKILL, the kernel kills the command itself (Linux only) but not its
// descendants. In all these cases it is the fencing token that protects.
package guard
