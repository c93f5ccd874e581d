package outage

import (
	"context"
	"fmt"
	"io"
	"strings"
	"syscall"
	"time"

	"github.com/fencelock/fencelock/tools/drills"
	"github.com/fencelock/fencelock/tools/drills/demo"
	"github.com/fencelock/fencelock/tools/drills/judge"
	"github.com/fencelock/fencelock/tools/drills/stack"
)

// Options say what happens.
type Options struct {
	Size demo.Options
	// How the lock server ends: SIGTERM or SIGKILL.
	How syscall.Signal
	// For how long it is away at least; longer than sessions live and what was begun takes to settle.
	For time.Duration
}

// Result is what came of it.
type Result struct {
	Options

	// Before is how many payouts were over when the lock server went away, and Waiting how many were not when all was quiet.
	Before, Waiting int
	// Quiet and Back are how many writes and requests at the rail there were when all was quiet, and when the lock server came back.
	Quiet, Back int
	// Watched is the time between the two.
	Watched  time.Duration
	Payouts  []stack.Payout
	Findings []judge.Finding
	// Duplicates is what rail_duplicate_attempted_total says at the end.
	Duplicates float64
}

// Run does it. It fails the test if the system cannot be brought up or stands still though the lock server is there.
func Run(t drills.T, programs *drills.Programs, o Options, w io.Writer) Result {
	t.Helper()
	r := Result{Options: o}
	begun := time.Now()
	say := func(format string, args ...any) {
		_, _ = fmt.Fprintf(w, "%6.1f s  %s\n", time.Since(begun).Seconds(), fmt.Sprintf(format, args...))
	}
	try := func(what string, err error) {
		t.Helper()
		if err != nil {
			t.Fatalf("%s: %v", what, err)
		}
	}
	s := stack.Start(t, programs, stack.Options{Backend: o.Size.Backend})
	for i := range o.Size.Executors {
		s.StartExecutor(fmt.Sprintf("executor-%d", i+1), o.Size.Concurrency)
	}
	half := max(o.Size.Payouts/2, 1)
	try("make payouts", s.Seed(t.Context(), "before:", o.Size.Accounts, half))
	s.Eventually("some payouts are over", func() bool {
		payouts, err := s.Payouts(t.Context())
		try("list payouts", err)
		r.Before = over(payouts)
		return r.Before > half/10
	})
	s.Lock.Signal(o.How)
	<-s.Lock.Exited()
	away := time.Now()
	say("%v: the lock server on %s is away, %d of %d payouts were done", o.How, o.Size.Backend, r.Before, half)
	try("make payouts", s.Seed(t.Context(), "during:", o.Size.Accounts, o.Size.Payouts-half))
	r.Quiet = quiet(t, s)
	payouts, err := s.Payouts(t.Context())
	try("list payouts", err)
	r.Waiting = len(payouts) - over(payouts)
	say("quiet: %d payouts wait", r.Waiting)
	watched := time.Now()
	pause(t.Context(), max(o.For-time.Since(away), stack.SessionTTL))
	r.Back, err = traces(t.Context(), s)
	try("look at the traces", err)
	r.Watched = time.Since(watched)
	s.RestartLock()
	say("the lock server is back after %.1f s", time.Since(away).Seconds())
	r.Payouts = s.AwaitOver(func(n int) { say("%d of %d payouts done", n, o.Size.Payouts) })
	scrapes, err := s.Scrape(t.Context())
	try("scrape", err)
	r.Duplicates = scrapes["rail-proxy"]["rail_duplicate_attempted_total"]
	try("stop executors", s.StopExecutors())
	evidence, err := s.Evidence(t.Context())
	try("collect evidence", err)
	r.Findings = judge.Judge(evidence)
	try("stop", s.Stop())
	return r
}

func over(payouts []stack.Payout) int {
	n := 0
	for _, p := range payouts {
		if p.State.Terminal() {
			n++
		}
	}
	return n
}

// traces counts what was written to the payouts by executors, and what the rail was asked.
func traces(ctx context.Context, s *stack.Stack) (int, error) {
	events, err := s.Events(ctx)
	if err != nil {
		return 0, err
	}
	transfers, err := s.Transfers(ctx)
	n := len(transfers)
	for _, e := range events {
		if e.From != "" {
			n++
		}
	}
	return n, err
}

// calm is how long nothing must happen for all to be quiet: longer than a session lives.
const calm = stack.SessionTTL + 2*time.Second

// quiet waits until what was begun is written down, and returns the number of traces.
func quiet(t drills.T, s *stack.Stack) int {
	t.Helper()
	last, changed := -1, time.Now()
	s.Eventually("all is quiet without locks", func() bool {
		n, err := traces(t.Context(), s)
		if err != nil {
			t.Fatalf("look at the traces: %v", err)
		}
		if n != last {
			last, changed = n, time.Now()
		}
		return time.Since(changed) > calm
	})
	return last
}

func pause(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}

// Faults say what is not as it must be.
func (r Result) Faults() []string {
	var faults []string
	if r.Waiting == 0 || r.Watched <= 0 {
		faults = append(faults, "nothing was shown: no payout waited while the lock server was away")
	}
	if r.Back != r.Quiet {
		faults = append(faults, fmt.Sprintf("%d writes or requests while nobody could have a lock", r.Back-r.Quiet))
	}
	for state, n := range stack.States(r.Payouts) {
		if state != judge.Posted {
			faults = append(faults, fmt.Sprintf("%d payouts are %s", n, state))
		}
	}
	for _, f := range r.Findings {
		if !f.Holds() {
			faults = append(faults, f.Invariant+" does not hold")
		}
	}
	if len(r.Findings) == 0 || len(r.Payouts) == 0 {
		faults = append(faults, "nothing was judged")
	}
	if r.Duplicates != 0 {
		faults = append(faults, fmt.Sprintf("rail_duplicate_attempted_total is %v", r.Duplicates))
	}
	return faults
}

// Print writes the verdict for people.
func (r Result) Print(w io.Writer) error {
	text := fmt.Sprintf("\n%v, locks on %s: %d payouts waited; in the last %.1f s without a lock server %d writes or requests\n",
		r.How, r.Size.Backend, r.Waiting, r.Watched.Seconds(), r.Back-r.Quiet)
	if _, err := io.WriteString(w, text); err != nil {
		return fmt.Errorf("print verdict: %w", err)
	}
	if err := judge.Print(w, r.Findings); err != nil {
		return err
	}
	last := "SOUND: nothing was executed without a lock server, and each payout was paid once\n"
	if faults := r.Faults(); len(faults) > 0 {
		last = "NOT SOUND:\n  " + strings.Join(faults, "\n  ") + "\n"
	}
	if _, err := io.WriteString(w, last); err != nil {
		return fmt.Errorf("print verdict: %w", err)
	}
	return nil
}
