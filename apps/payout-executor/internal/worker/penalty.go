package worker

import (
	"math/rand/v2"
	"time"
)

// pace is how a pause grows: from base, doubling with each failure in a row, to most; the latter half of each is drawn.
type pace struct{ base, most time.Duration }

// accountPace is for accounts whose last execution was left.
func accountPace() pace { return pace{100 * time.Millisecond, 5 * time.Second} }

// contendedPace is for accounts that somebody else is at.
func contendedPace() pace { return pace{100 * time.Millisecond, time.Second} }

// refusedPace is for payouts that were refused: for good, as far as one can tell, or while the fate of others is open.
func refusedPace() pace { return pace{time.Second, time.Minute} }

// ambiguousPace is for payouts that wait for evidence.
func ambiguousPace() pace { return pace{2 * time.Second, 5 * time.Minute} }

// maxDoublings keeps the shift small.
const maxDoublings = 16

func (p pace) pause(failures int) time.Duration {
	d := min(p.most, p.base<<min(failures, maxDoublings))
	return d/2 + rand.N(d/2+1) //nolint:gosec // jitter is no secret
}

// penalty keeps something from being tried again before its time.
type penalty struct {
	failures int
	until    time.Time
}

// penalties are by name. One whose time has been over for long is forgotten, with its failures.
type penalties map[string]penalty

func (p penalties) raise(name string, by pace, now time.Time) {
	old := p[name]
	p[name] = penalty{failures: old.failures + 1, until: now.Add(by.pause(old.failures))}
}

// until is when the name may be tried again; zero means now.
func (p penalties) until(name string) time.Time { return p[name].until }

// raised are the names that must wait now.
func (p penalties) raised(now time.Time) map[string]bool {
	names := map[string]bool{}
	for name, old := range p {
		if old.until.After(now) {
			names[name] = true
		}
	}
	return names
}

func (p penalties) tidy(now time.Time) {
	for name, old := range p {
		if now.Sub(old.until) > 2*ambiguousPace().most {
			delete(p, name)
		}
	}
}
