package experiment

import (
	"context"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/fencelock/fencelock/tools/drills"
	"github.com/fencelock/fencelock/tools/drills/judge"
	"github.com/fencelock/fencelock/tools/drills/stage"
)

// Make makes so many runs in each position, the positions side by side, since they mostly wait for sessions to die. A line for each
// run goes to w. What breaks a position off is in the error; the report has what was done until then.
func Make(ctx context.Context, programs *drills.Programs, backend string, each int, w io.Writer) (Report, error) {
	m := &maker{report: Report{Each: each, Broken: map[Position][]string{}}, w: w, begun: time.Now()}
	var all sync.WaitGroup
	for _, p := range Positions() {
		all.Go(func() {
			err := stage.Run(ctx, w, func(s *stage.Stage) error { return m.position(s, programs, backend, p) })
			m.fail(p, err)
		})
	}
	all.Wait()
	return m.report, m.err
}

// maker collects what the positions report.
type maker struct {
	w     io.Writer
	begun time.Time

	mu     sync.Mutex
	report Report
	err    error
}

// position makes the runs of one position.
func (m *maker) position(t drills.T, programs *drills.Programs, backend string, p Position) error {
	lab := NewLab(t, programs, backend, p)
	for number := 1; number <= m.report.Each; number++ {
		m.add(lab.Run(number))
	}
	findings, err := lab.Judge()
	m.mu.Lock()
	defer m.mu.Unlock()
	m.report.Broken[p] = judge.Broken(findings)
	return err
}

func (m *maker) add(runs []Run) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, r := range runs {
		m.report.Runs = append(m.report.Runs, r)
		verdict, why := r.Judge()
		if why != "" {
			why = ": " + why
		}
		_, _ = fmt.Fprintf(m.w, "%5.0f s  run %2d  %v  site %-6s  %v%s\n",
			time.Since(m.begun).Seconds(), r.Number, r.Position, r.Site, verdict, why)
	}
}

func (m *maker) fail(p Position, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err != nil && m.err == nil {
		m.err = fmt.Errorf("%v: %w", p, err)
	}
}
