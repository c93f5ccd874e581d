package guard

import (
	"encoding/json"
	"io"
	"testing"
	"time"
)

// The schedule is tested from inside: it is the arithmetic on which "gone before the deadline" rests.

const (
	testGrace    = 4 * time.Second
	testDeadline = 100 * time.Second
)

func TestTermComesAGraceBeforeTheDeadline(t *testing.T) {
	t.Parallel()
	s := schedule{grace: testGrace, deadline: testDeadline}
	if s.endangered(testDeadline - testGrace - 1) {
		t.Error("too early")
	}
	if !s.endangered(testDeadline - testGrace) {
		t.Error("too late")
	}
}

func TestKillComesBeforeTheDeadline(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name   string
		stop   time.Duration
		want   time.Duration
		isLost bool
	}{
		{name: "stopped at the last moment", stop: testDeadline - testGrace, want: testDeadline - testGrace/4, isLost: true},
		{name: "stopped too late", stop: testDeadline - time.Second, want: testDeadline - testGrace/4, isLost: true},
		{name: "lost long before", stop: time.Second, want: time.Second + testGrace*3/4, isLost: true},
		{name: "ended by itself", stop: time.Second, want: time.Second + testGrace*3/4},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			s := schedule{grace: testGrace, deadline: testDeadline}
			begin := s.stop
			if c.isLost {
				begin = s.lose
			}
			if s.killDue(testDeadline) {
				t.Error("kill due before the stop")
			}
			if !begin(c.stop) || begin(c.stop) {
				t.Error("the stop must begin exactly once")
			}
			if s.killDue(c.want-1) || !s.killDue(c.want) || s.lost != c.isLost {
				t.Errorf("kill at %v, want %v; lost %v", s.killAt, c.want, s.lost)
			}
		})
	}
}

func TestAStopIsFinal(t *testing.T) {
	t.Parallel()
	s := schedule{grace: testGrace, deadline: testDeadline}
	s.stop(time.Second)
	s.move(10 * testDeadline)
	s.lose(50 * time.Second)
	if s.deadline != testDeadline || s.killAt != time.Second+testGrace*3/4 || !s.lost {
		t.Errorf("a stop was put off: %+v", s)
	}
}

// stopped is a clock that tests move.
type stopped struct{ now time.Duration }

func (s *stopped) Elapsed() time.Duration { return s.now }

func TestAnAnswerCountsFromItsQuestion(t *testing.T) {
	t.Parallel()
	now := &stopped{now: 10 * time.Second}
	g := &guardian{clock: now, reports: json.NewEncoder(io.Discard), schedule: schedule{grace: testGrace}}
	g.ask()
	now.now = 15 * time.Second // the program was slow, or frozen before or after it looked
	g.ask()                    // one question at a time
	if g.asked != 1 {
		t.Fatalf("asked %d times without an answer", g.asked)
	}
	g.obey(order{Answer: 1, Left: 20 * time.Second}, true)
	if want := 30 * time.Second; g.schedule.deadline != want {
		t.Errorf("deadline %v, want %v: counted from when the answer came", g.schedule.deadline, want)
	}
	g.obey(order{Answer: 2, Left: time.Hour}, true)
	if want := 30 * time.Second; g.schedule.deadline != want {
		t.Errorf("an answer to no question moved the deadline to %v", g.schedule.deadline)
	}
}
