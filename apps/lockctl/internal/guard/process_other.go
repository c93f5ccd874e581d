//go:build unix && !linux

package guard

import "syscall"

// adoptOrphans does nothing: process 1 reaps orphans.
func adoptOrphans() {}

// tie does nothing: the kernel offers no such thing.
func tie(*syscall.SysProcAttr) {}
