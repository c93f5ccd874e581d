package guard

import (
	"errors"

	"golang.org/x/sys/unix"
)

// group is a process group that descends from this process.
type group struct {
	id int
	// status is the wait status of the group's leader once it was reaped.
	status unix.WaitStatus
	ended  bool
	// paused is set when the terminal has just suspended the leader.
	paused bool
	// everyone makes reap collect all children of this process, not only those of the group.
	everyone bool
}

// signal sends sig to every process of the group.
func (g *group) signal(sig unix.Signal) {
	// A group that is gone is what the caller wants; one that may not be
	// signalled shows in gone.
	_ = unix.Kill(-g.id, sig)
}

// terminate asks every process of the group to end. Stopped ones are woken, or they
// could not hear it.
func (g *group) terminate() {
	g.signal(unix.SIGTERM)
	g.signal(unix.SIGCONT)
}

// reap collects the children that have ended, orphans of the group included: a zombie
// would keep its group alive for ever.
func (g *group) reap() {
	whom := -g.id
	if g.everyone {
		whom = -1
	}
	for {
		var status unix.WaitStatus
		pid, err := unix.Wait4(whom, &status, unix.WNOHANG|unix.WUNTRACED, nil)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil || pid <= 0 {
			return
		}
		if pid != g.id {
			continue
		}
		if status.Stopped() {
			g.paused = status.StopSignal() == unix.SIGTSTP
			continue
		}
		g.status, g.ended = status, true
	}
}

// gone reports whether no process of the group is left.
func (g *group) gone() bool {
	g.reap()
	return errors.Is(unix.Kill(-g.id, 0), unix.ESRCH)
}

// code is the leader's exit code as shells give it: 128 + n for signal n.
func (g *group) code() int {
	if g.status.Signaled() {
		return 128 + int(g.status.Signal())
	}
	return g.status.ExitStatus()
}
