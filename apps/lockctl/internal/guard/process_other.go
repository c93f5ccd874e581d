//go:build unix && !linux

package guard

import (
	"os"
	"syscall"
)

// adoptOrphans does nothing: process 1 reaps orphans.
func adoptOrphans() {}

// tie does nothing: the kernel offers no such thing.
func tie(*syscall.SysProcAttr) {}

// self is the file of the running program.
func self() (string, error) { return os.Executable() }
