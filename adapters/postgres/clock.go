package postgres

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/fencelock/fencelock/core/port"
)

const (
	// stepSize is how far the database's clock may be from where it is expected before it counts as set.
	stepSize = time.Second
	// maxDrift is the part of the elapsed time by which two healthy clocks differ at most.
	maxDrift = 0.01
	// forever is longer than any life, and short enough for an interval.
	forever = 1000 * time.Hour
)

// dbClock follows the database's clock, which is a wall clock and can be set, on this server's own, which cannot.
//
// Its estimate is at most what the database's clock shows, so a forward step of that clock makes nobody's time pass:
// the estimate follows it at a drift's pace, or anew once the step was noticed. A backward step is noticed by what the
// estimate has been lately.
type dbClock struct {
	clock port.Clock

	mu sync.Mutex
	// zero is what the database's clock showed when ours was at zero, estimated from below.
	zero time.Time
	// top is at least what the database's clock showed then, as far as the samples since the last step tell.
	top time.Time
	// high is where zero has been; it comes down at a drift's pace. Small steps back add up below it.
	high time.Time
	// last is when the estimate was made, and first when the first one was, on our clock; seen says that there is one.
	seen        bool
	first, last time.Duration
	// quiet is since when no step was seen; stepped says that there was one.
	stepped bool
	quiet   time.Duration
}

func newDBClock(clock port.Clock) *dbClock { return &dbClock{clock: clock} }

// elapsed is our own clock's reading.
func (c *dbClock) elapsed() time.Duration { return c.clock.Elapsed() }

// observe takes note that the database's clock showed a time between two readings of ours, and returns by how much it was set
// since the last time; 0 if it was not.
func (c *dbClock) observe(sent, received time.Duration, shown time.Time) (stepped time.Duration) {
	// The database's clock at our zero is between low and top.
	low, top := shown.Add(-received), shown.Add(-sent)
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.seen {
		c.seen, c.first, c.last = true, received, received
		c.zero, c.high, c.top = low, low, top
		return 0
	}
	drift := time.Duration(float64(max(received-c.last, 0)) * maxDrift)
	c.last = max(c.last, received)
	// After slow answers it was anywhere up to top.
	if ahead := low.Sub(later(c.zero, c.top)); ahead > stepSize {
		return c.rebase(low, top, received, ahead)
	}
	if behind := top.Sub(c.high); behind < -stepSize {
		return c.rebase(low, top, received, behind)
	}
	if low.After(c.zero) {
		c.zero = earlier(low, later(c.zero.Add(drift), c.top))
	}
	c.zero, c.top = earlier(c.zero, top), earlier(c.top, top)
	if c.high = c.high.Add(-drift); c.high.Before(c.zero) {
		c.high = c.zero
	}
	return 0
}

// rebase begins anew after a step. The caller holds the mutex.
func (c *dbClock) rebase(low, top time.Time, at, step time.Duration) time.Duration {
	c.zero, c.high, c.top = low, low, top
	c.stepped, c.quiet = true, at
	return step
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

func earlier(a, b time.Time) time.Time {
	if a.Before(b) {
		return a
	}
	return b
}

// noteClock takes note of what the database's clock showed between two readings of our own, and reports if it was set.
func (s *Store) noteClock(sent, received time.Duration, shown time.Time) {
	if by := s.clock.observe(sent, received, shown); by != 0 {
		s.report(Incident{Kind: ClockStepped, Err: fmt.Errorf("the database's clock was set by %v", by)})
	}
}

// reading stands for $1 to $3 of a statement, as [over] reads them. What they are is found out when the statement is
// sent: a call may have waited for a connection by then.
type reading struct{ clock *dbClock }

func (c *dbClock) reading() reading { return reading{c} }

// args are the first arguments of a statement.
func (r reading) args() []any { return []any{r} }

// RewriteQuery implements [pgx.QueryRewriter].
func (r reading) RewriteQuery(_ context.Context, _ *pgx.Conn, sql string, args []any) (string, []any, error) {
	estimate, quiet, watched := r.clock.told()
	return sql, append([]any{estimate, quiet, watched}, args...), nil
}

// told is what a statement is told of the time now: an estimate that is at most what the database's clock shows, and long ago before
// the first observation; for how long that clock was not set, as far as is known here; and for how long that is known.
func (c *dbClock) told() (estimate time.Time, quiet, watched time.Duration) {
	now := c.clock.Elapsed()
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.seen {
		return time.Unix(0, 0), 0, 0
	}
	quiet, watched = forever, min(now-c.first, forever)
	if c.stepped {
		quiet = min(now-c.quiet, forever)
		watched = min(watched, quiet)
	}
	return c.zero.Add(now), quiet, watched
}
