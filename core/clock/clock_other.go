//go:build !linux

package clock

import "time"

// boottime is not available: the monotonic clock has to do.
func boottime() (elapsed time.Duration, ok bool) { return 0, false }
