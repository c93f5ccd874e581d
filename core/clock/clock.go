package clock

import "time"

// start anchors the fallback; only differences of Elapsed values mean anything.
//
//nolint:gochecknoglobals // A process has one anchor, or two readings could not be compared.
var start = time.Now()

// Boot is the suspend-aware clock of this machine. It implements port.Clock.
type Boot struct{}

// Elapsed returns the time since some fixed moment, CLOCK_BOOTTIME on Linux,
// the monotonic clock elsewhere. It never goes back and is comparable only
// within one process.
func (Boot) Elapsed() time.Duration {
	if d, ok := boottime(); ok {
		return d
	}
	return time.Since(start)
}
