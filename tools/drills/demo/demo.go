package demo

import (
	"fmt"
	"io"
	"time"

	"github.com/fencelock/fencelock/tools/drills"
	"github.com/fencelock/fencelock/tools/drills/judge"
	"github.com/fencelock/fencelock/tools/drills/metrics"
	"github.com/fencelock/fencelock/tools/drills/stack"
)

// Options say how much there is to do.
type Options struct {
	// Backend is where the locks are kept: [stack.Etcd] or [stack.Postgres]. Nothing else depends on it.
	Backend string
	// Accounts that are opened, and Payouts that leave them in turn.
	Accounts, Payouts int
	// Executors that share the work, each with so many payouts at a time.
	Executors, Concurrency int
}

// Result is what came of it.
type Result struct {
	Payouts  []stack.Payout
	Evidence judge.Evidence
	Findings []judge.Finding
	// First and Last are the metrics of all programs before the first payout was made and after the last was over.
	First, Last map[string]metrics.Scrape
	// Took is how long the executors worked.
	Took time.Duration
}

// Run does it, with lines of progress to w. It fails the test if the system cannot be brought up or stands still.
func Run(t drills.T, programs *drills.Programs, o Options, w io.Writer) Result {
	t.Helper()
	say := func(format string, args ...any) { _, _ = fmt.Fprintf(w, format+"\n", args...) }
	say("starting a lock server with its locks on %s, the rail, the proxy before it, the payment resource", o.Backend)
	s := stack.Start(t, programs, stack.Options{Backend: o.Backend})
	var r Result
	try := func(what string, err error) {
		t.Helper()
		if err != nil {
			t.Fatalf("%s: %v", what, err)
		}
	}
	for i := range o.Executors {
		s.StartExecutor(fmt.Sprintf("executor-%d", i+1), o.Concurrency)
	}
	var err error
	r.First, err = s.Scrape(t.Context())
	try("first scrape", err)
	say("%d executors; making %d payouts of %d accounts", o.Executors, o.Payouts, o.Accounts)
	begun := time.Now()
	try("make payouts", s.Seed(t.Context(), "", o.Accounts, o.Payouts))
	r.Payouts = s.AwaitOver(func(over int) {
		say("%6.1f s  %d of %d payouts done", time.Since(begun).Seconds(), over, o.Payouts)
	})
	r.Took = time.Since(begun)
	r.Last, err = s.Scrape(t.Context())
	try("last scrape", err)
	try("stop executors", s.StopExecutors())
	r.Evidence, err = s.Evidence(t.Context())
	try("collect evidence", err)
	r.Findings = judge.Judge(r.Evidence)
	try("stop", s.Stop())
	return r
}
