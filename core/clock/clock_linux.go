package clock

import (
	"syscall"
	"time"
	"unsafe"
)

// clockBoottime is CLOCK_BOOTTIME of clock_gettime(2).
const clockBoottime = 7

// boottime reads CLOCK_BOOTTIME; ok is false where the kernel refuses.
func boottime() (elapsed time.Duration, ok bool) {
	var ts syscall.Timespec
	//nolint:gosec // The kernel fills the struct during the call; nothing keeps the pointer.
	_, _, errno := syscall.Syscall(syscall.SYS_CLOCK_GETTIME, clockBoottime, uintptr(unsafe.Pointer(&ts)), 0)
	if errno != 0 {
		return 0, false
	}
	return time.Duration(ts.Nano()), true
}
