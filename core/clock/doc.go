// Package clock tells elapsed time on a clock that also runs while the machine
// is suspended. Go's monotonic clock stops then, so a deadline kept on it would
// fire too late after a laptop or a virtual machine wakes up.
package clock
