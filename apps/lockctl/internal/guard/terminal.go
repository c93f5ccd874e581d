package guard

import (
	"os/signal"
	"syscall"

	"golang.org/x/sys/unix"
)

// stdin is the descriptor whose terminal, if any, the command may read.
const stdin = 0

// terminal remembers who had the terminal in the foreground.
type terminal struct{ foreground int }

// lendTerminal arranges that the command gets the terminal, if standard input is one and
// the program that started the guardian has it now. Otherwise the command, being
// in a group of its own, would be stopped at its first read.
func lendTerminal(attr *syscall.SysProcAttr) terminal {
	foreground, err := unix.IoctlGetInt(stdin, unix.TIOCGPGRP)
	if err != nil {
		return terminal{}
	}
	starter, err := unix.Getpgid(unix.Getppid())
	if err != nil || starter != foreground {
		return terminal{}
	}
	attr.Foreground, attr.Ctty = true, stdin
	return terminal{foreground: foreground}
}

// lent reports whether the command has the terminal.
func (t terminal) lent() bool { return t.foreground != 0 }

// takeBack gives the terminal to whom it was lent from.
func (t terminal) takeBack() {
	if !t.lent() {
		return
	}
	// A background process that does this is stopped by SIGTTOU unless it ignores it.
	signal.Ignore(unix.SIGTTOU)
	_ = unix.IoctlSetPointerInt(stdin, unix.TIOCSPGRP, t.foreground)
}
