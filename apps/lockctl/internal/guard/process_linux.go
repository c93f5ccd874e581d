package guard

import (
	"syscall"

	"golang.org/x/sys/unix"
)

// adoptOrphans makes this process the parent of its descendants' orphans, so
// that it can reap them. Without it their zombies wait for process 1, which in a
// container often reaps nothing.
func adoptOrphans() { _ = unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) }

// tie has the kernel kill the child when this thread ends: the caller must hold its thread.
func tie(attr *syscall.SysProcAttr) { attr.Pdeathsig = syscall.SIGKILL }

// self is the running program, also where its file was replaced meanwhile: the two processes
// must speak the same protocol.
func self() (string, error) { return "/proc/self/exe", nil }
