package guard

import "time"

// schedule decides when a group is told to end and when it is killed. All
// times are readings of one clock, and every decision compares on use.
type schedule struct {
	grace    time.Duration
	deadline time.Duration
	// lost says that the stop was due to the lock, not to the command's own end.
	lost bool
	// stopping is set from the first reason to stop on; it is never unset.
	stopping bool
	killAt   time.Duration
}

// move sets a new deadline, unless the stop has begun: whoever has been told to
// end is not told to go on.
func (s *schedule) move(deadline time.Duration) {
	if !s.stopping {
		s.deadline = deadline
	}
}

// stop begins the stop and reports whether it was this call that began it.
func (s *schedule) stop(now time.Duration) bool {
	if s.stopping {
		return false
	}
	s.stopping = true
	s.killAt = min(now+s.grace*3/4, s.deadline-s.grace/4)
	return true
}

// lose is stop because the lock is lost.
func (s *schedule) lose(now time.Duration) bool {
	s.lost = true
	return s.stop(now)
}

// endangered reports whether so little is left that the command must be told to end now.
func (s *schedule) endangered(now time.Duration) bool { return now >= s.deadline-s.grace }

// killDue reports whether the time to end in peace is over.
func (s *schedule) killDue(now time.Duration) bool { return s.stopping && now >= s.killAt }
