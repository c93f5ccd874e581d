package postgres_test

import (
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/fencelock/fencelock/adapters/postgres"
	"github.com/fencelock/fencelock/core/clock"
	"github.com/fencelock/fencelock/core/lock"
	"github.com/fencelock/fencelock/tools/testenv"
)

// hand is a clock that a test moves, and beside it the database's, which can be set and can run wrong.
type hand struct {
	now  time.Duration
	wall time.Time
}

func (h *hand) Elapsed() time.Duration { return h.now }

// pass lets time go by on both.
func (h *hand) pass(d time.Duration) {
	h.now += d
	h.wall = h.wall.Add(d)
}

// watch is a database's clock as a Store sees it.
type watch struct {
	*hand
	postgres.DatabaseClock

	t *testing.T
}

func newWatch(t *testing.T) *watch {
	t.Helper()
	h := &hand{now: time.Hour, wall: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)}
	return &watch{hand: h, DatabaseClock: postgres.NewDatabaseClock(h), t: t}
}

// sample asks the database, which takes that long on the way there and on the way back.
func (w *watch) sample(there, back time.Duration) time.Duration {
	sent := w.now
	w.pass(there)
	shown := w.wall
	w.pass(back)
	return w.Observe(sent, w.now, shown)
}

// second lets a second go by and samples quickly.
func (w *watch) second() time.Duration {
	w.pass(time.Second)
	return w.sample(0, 0)
}

func (w *watch) set(d time.Duration) { w.wall = w.wall.Add(d) }

// lag is how far the estimate is behind the database's clock.
func (w *watch) lag() time.Duration {
	estimate, _, _ := w.Reading()
	return w.wall.Sub(estimate)
}

func (w *watch) expect(what string, got, low, high time.Duration) {
	w.t.Helper()
	if got < low || got > high {
		w.t.Errorf("%s is %v, want %v to %v", what, got, low, high)
	}
}

const never = 1000 * time.Hour

func TestClockBeforeTheFirstSampleEndsNobody(t *testing.T) {
	t.Parallel()
	w := newWatch(t)
	w.pass(time.Hour)
	estimate, quiet, watched := w.Reading()
	if quiet != 0 || watched != 0 || w.wall.Sub(estimate) < 24*time.Hour {
		t.Errorf("reading is %v, %v, %v", estimate, quiet, watched)
	}
}

func TestClockIsNeverAheadForSlowAnswers(t *testing.T) {
	t.Parallel()
	w := newWatch(t)
	w.sample(time.Millisecond, 3*time.Millisecond)
	w.expect("lag after the first sample", w.lag(), 0, 3*time.Millisecond)
	for _, trip := range []struct{ there, back time.Duration }{
		{0, 10 * time.Second}, {10 * time.Second, 0}, {5 * time.Second, 5 * time.Second}, {0, 0}, {900 * time.Millisecond, time.Millisecond},
	} {
		w.pass(time.Second)
		if step := w.sample(trip.there, trip.back); step != 0 {
			t.Errorf("an answer that took %v counts as a step of %v", trip, step)
		}
		w.expect("lag", w.lag(), 0, 3*time.Millisecond)
	}
	_, quiet, watched := w.Reading()
	w.expect("quiet", quiet, never, never)
	w.expect("watched", watched, 30*time.Second, time.Minute)
}

func TestClockFollowsDrift(t *testing.T) {
	t.Parallel()
	for _, rate := range []time.Duration{500 * time.Microsecond, -500 * time.Microsecond, 5 * time.Millisecond, -5 * time.Millisecond} {
		w := newWatch(t)
		w.sample(0, 0)
		for range 10_000 {
			w.set(rate) // in each second
			if step := w.second(); step != 0 {
				t.Fatalf("a drift of %v in a second counts as a step of %v", rate, step)
			}
			w.expect("lag", w.lag(), 0, 10*time.Millisecond)
		}
	}
}

func TestClockStepForwardPassesNobodysTime(t *testing.T) {
	t.Parallel()
	w := newWatch(t)
	w.sample(0, 0)
	w.pass(time.Second)
	w.set(time.Hour)
	w.expect("lag before it is noticed", w.lag(), time.Hour, time.Hour)
	step := w.sample(0, 200*time.Millisecond)
	w.expect("step", step, 59*time.Minute, time.Hour)
	_, quiet, watched := w.Reading()
	w.expect("quiet", quiet, 0, 0)
	w.expect("watched", watched, 0, 0)
	w.expect("lag once noticed", w.lag(), 0, 200*time.Millisecond)
	w.pass(15 * time.Second)
	_, quiet, watched = w.Reading()
	w.expect("quiet later", quiet, 15*time.Second, 15*time.Second)
	w.expect("watched later", watched, 15*time.Second, 15*time.Second)
}

func TestClockStepBack(t *testing.T) {
	t.Parallel()
	w := newWatch(t)
	w.sample(0, 0)
	w.pass(time.Second)
	w.set(-time.Hour)
	// Asked that slowly, nothing says how far it was set; but that it was.
	step := w.sample(time.Second, time.Second)
	w.expect("step", step, -time.Hour, -59*time.Minute)
	w.expect("lag", w.lag(), 0, time.Second)
	_, quiet, _ := w.Reading()
	w.expect("quiet", quiet, 0, 0)
	if step := w.second(); step != 0 {
		t.Errorf("one step counts twice: %v", step)
	}
}

// TestClockSmallSteps: one below a second is none, either way; but the estimate is not ahead of it.
func TestClockSmallSteps(t *testing.T) {
	t.Parallel()
	for _, size := range []time.Duration{900 * time.Millisecond, -900 * time.Millisecond} {
		w := newWatch(t)
		w.sample(0, 0)
		w.pass(time.Second)
		w.set(size)
		w.expect("lag before", w.lag(), size, size)
		if step := w.sample(0, 0); step != 0 {
			t.Errorf("set by %v counts as a step of %v", size, step)
		}
		w.expect("lag at once", w.lag(), max(0, size-20*time.Millisecond), max(0, size))
		for range 120 {
			if step := w.second(); step != 0 {
				t.Errorf("set by %v counts as a step of %v later", size, step)
			}
		}
		w.expect("lag in the end", w.lag(), 0, 0)
		_, quiet, _ := w.Reading()
		w.expect("quiet", quiet, never, never)
	}
}

// TestClockSmallStepsAddUp: nobody may go around the limit by setting the clock often.
func TestClockSmallStepsAddUp(t *testing.T) {
	t.Parallel()
	for _, size := range []time.Duration{400 * time.Millisecond, -400 * time.Millisecond} {
		w := newWatch(t)
		w.sample(0, 0)
		total := time.Duration(0)
		for range 3 {
			w.set(size)
			total += w.second()
		}
		if total.Abs() < time.Second || (total > 0) != (size > 0) {
			t.Errorf("set three times by %v counts as a step of %v", size, total)
		}
		_, quiet, _ := w.Reading()
		w.expect("quiet", quiet, 0, time.Second)
		w.expect("lag", w.lag(), 0, size.Abs())
	}
}

// TestClockThereAndBack: a clock that is set back a little and forward again makes nobody's time pass at the second step.
func TestClockThereAndBack(t *testing.T) {
	t.Parallel()
	w := newWatch(t)
	w.sample(0, 0)
	w.set(-900 * time.Millisecond)
	w.second()
	w.set(900 * time.Millisecond)
	w.expect("lag after the second step", w.lag(), 880*time.Millisecond, 900*time.Millisecond)
}

// TestClockSlowStart: what the first answers left open is no step when quick ones tell it, neither at the start nor after a step.
func TestClockSlowStart(t *testing.T) {
	t.Parallel()
	const slow = 3 * time.Second
	w := newWatch(t)
	w.sample(0, slow)
	w.expect("lag after a slow answer", w.lag(), slow, slow)
	if step := w.second(); step != 0 {
		t.Errorf("nobody has set the clock, and it counts as a step of %v", step)
	}
	w.expect("lag after a quick one", w.lag(), 0, 0)
	w.set(time.Hour)
	w.sample(0, slow)
	if step := w.second(); step != 0 {
		t.Errorf("one step counts twice: %v", step)
	}
	_, quiet, _ := w.Reading()
	w.expect("quiet", quiet, time.Second, time.Minute)
	w.expect("lag at last", w.lag(), 0, 0)
	w.set(1500 * time.Millisecond)
	if step := w.second(); step == 0 {
		t.Error("a step after quick answers counts as what a slow one left open")
	}
}

// TestReadingIsTakenWhenAStatementIsSent: a call may have waited for its connection for any time.
func TestReadingIsTakenWhenAStatementIsSent(t *testing.T) {
	t.Parallel()
	w := newWatch(t)
	w.sample(0, 0)
	args := w.Args()
	w.pass(time.Hour)
	pool := raw(t, testenv.Postgres(t).Database(t))
	var told time.Time
	var watched time.Duration
	err := pool.QueryRow(t.Context(), "SELECT $1::timestamptz, $3::interval FROM (SELECT $2::interval) q", args...).Scan(&told, &watched)
	if err != nil || !told.Equal(w.wall) || watched != time.Hour {
		t.Errorf("told %v, %v, %v; it is %v", told, watched, err, w.wall)
	}
	var batch pgx.Batch
	batch.Queue("SELECT $1::timestamptz, $3::interval FROM (SELECT $2::interval) q", args...)
	w.pass(time.Hour)
	results := pool.SendBatch(t.Context(), &batch)
	err = results.QueryRow().Scan(&told, &watched)
	if err := errors.Join(err, results.Close()); err != nil || !told.Equal(w.wall) || watched != 2*time.Hour {
		t.Errorf("told %v, %v, %v in a batch; it is %v", told, watched, err, w.wall)
	}
}

// TestClockLateSamplesAreHarmless: two samples may be noted in another order than they were taken.
func TestClockLateSamplesAreHarmless(t *testing.T) {
	t.Parallel()
	w := newWatch(t)
	w.sample(0, 0)
	w.set(500 * time.Millisecond)
	w.pass(time.Second)
	sent, shown := w.now, w.wall
	w.pass(5 * time.Second)
	w.sample(0, 0)
	before := w.lag()
	if step := w.Observe(sent, sent+time.Millisecond, shown); step != 0 {
		t.Errorf("a late sample counts as a step of %v", step)
	}
	w.expect("lag", w.lag(), before, before)
}

// TestLivesThatAreOver: the condition of every statement, as the database judges it. Times are relative to its clock.
func TestLivesThatAreOver(t *testing.T) {
	t.Parallel()
	pool := raw(t, testenv.Postgres(t).Database(t))
	const span = 15 * time.Second
	for _, c := range []struct {
		what                      string
		since                     time.Duration
		estimate, quiet, watching time.Duration
		want                      bool
	}{
		{"alive", -5 * time.Second, 0, never, never, false},
		{"past its end", -time.Minute, 0, never, never, true},
		{"past its end, but the clock was set forward, and this server does not know yet", -time.Hour, -time.Hour, never, never, false},
		{"past its end, and the clock was set lately", -time.Minute, 0, span - 1, span - 1, false},
		{"past its end, and the clock was set long ago", -time.Minute, 0, span, span, true},
		{"of a future that is past, and has been watched for long", time.Hour, 0, span, span, true},
		{"of a future that is past, seen by a server that was just started", time.Hour, 0, never, span - 1, false},
		{"alive, but the clock was set back, and this server does not know yet", time.Hour, time.Hour + time.Second, never, never, false},
		{"alive, but the clock was set back since this server has read its own", time.Hour, time.Hour - time.Second, never, never, false},
		{"before the first observation", -time.Hour, -never, 0, 0, false},
	} {
		var got bool
		err := pool.QueryRow(t.Context(), "SELECT "+postgres.Over("x.since", "x.till")+
			" FROM (SELECT now() + $4::interval AS since, now() + $4::interval + $5::interval AS till) AS x",
			databaseNow(t, pool).Add(c.estimate), c.quiet, c.watching, c.since, span).Scan(&got)
		if err != nil || got != c.want {
			t.Errorf("%s: over is %v, %v, want %v", c.what, got, err, c.want)
		}
	}
}

func databaseNow(t *testing.T, pool *pgxpool.Pool) (now time.Time) {
	t.Helper()
	if err := pool.QueryRow(t.Context(), "SELECT clock_timestamp()").Scan(&now); err != nil {
		t.Fatal(err)
	}
	return now
}

// ahead is a clock that a test moves ahead.
type ahead struct {
	clock.Boot

	by atomic.Int64
}

func (a *ahead) Elapsed() time.Duration { return a.Boot.Elapsed() + time.Duration(a.by.Load()) }

// TestClockSetBackKillsNobody: the database's clock goes back by an hour. To this server that is the same as all times in the
// database, and its own, going ahead.
func TestClockSetBackKillsNobody(t *testing.T) {
	t.Parallel()
	own, cfg := &ahead{}, config()
	cfg.Clock = own
	p := placeAt(t, postgres.Access{URL: testenv.Postgres(t).Database(t)}, cfg)
	session, other := p.open(lock.DefaultTTL), p.open(lock.DefaultTTL)
	held := p.grab("a", session)
	p.exec("UPDATE fencelock.lock_session SET renewed_at = renewed_at + interval '1 h', expires_at = expires_at + interval '1 h'")
	own.by.Store(int64(time.Hour))
	a, err := p.TryInsert(t.Context(), request(held.Key, other.ID))
	if err != nil || a.Granted || a.Holder.Token != held.Token {
		t.Errorf("acquire of a held key: %+v, %v", a, err)
	}
	p.hears(postgres.ClockStepped)
	for _, id := range []lock.SessionID{session.ID, other.ID} {
		if _, err := p.Heartbeat(t.Context(), id); err != nil {
			t.Errorf("heartbeat: %v", err)
		}
	}
	p.release(held)
}
