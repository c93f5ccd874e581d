package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fencelock/fencelock/apps/payout-executor/internal/executor"
	"github.com/fencelock/fencelock/apps/payout-executor/internal/locks"
	"github.com/fencelock/fencelock/apps/payout-executor/internal/model"
	"github.com/fencelock/fencelock/apps/payout-executor/internal/payout"
	"github.com/fencelock/fencelock/apps/payout-executor/internal/reconcile"
	"github.com/fencelock/fencelock/apps/program"
	paymentsv1 "github.com/fencelock/fencelock/contracts/api/fencelock/payments/v1"
)

// run is the program with its output.
func run(args ...string) (code int, stdout, stderr string) {
	var out, errs bytes.Buffer
	code = payoutExecutor().Run(args, nil, &out, &errs, make(chan os.Signal))
	return code, out.String(), errs.String()
}

// at are the arguments that lead to the stage.
func (s *stage) at(args ...string) []string {
	return append(args, "--payout.lock-servers="+s.lockURL, "--payout.payment="+s.services, "--payout.rail="+s.services)
}

// reconcile runs the command and reads its report.
func (s *stage) reconcile(t *testing.T) (int, reconcile.Report) {
	t.Helper()
	code, out, errs := run(s.at("reconcile", "--json", "--payout.rail-log="+s.services)...)
	var report reconcile.Report
	if err := json.Unmarshal([]byte(out), &report); err != nil {
		t.Fatalf("code %d, %v: %s%s", code, err, out, errs)
	}
	return code, report
}

// classes are those of the findings, each once.
func classes(r reconcile.Report) []reconcile.Class {
	var found []reconcile.Class
	for _, f := range r.Findings {
		found = append(found, f.Class)
	}
	slices.Sort(found)
	return slices.Compact(found)
}

// TestReconcileFindsEachBreak plants one at a time into books that are sound.
func TestReconcileFindsEachBreak(t *testing.T) {
	t.Parallel()
	posted := func(s *stage) {
		s.Put(thePayout, wire(payout.StateRailAcked), 5, "tr-"+thePayout)
		s.Send(thePayout, 5, acked, true)
		s.Settle(thePayout, 5)
	}
	tamper := func(change func(b *model.Books)) func(*stage) {
		return func(s *stage) {
			posted(s)
			s.Tamper(change)
		}
	}
	left := func(state payout.State, outcome paymentsv1.SubmissionOutcome, executed bool) func(*stage) {
		return func(s *stage) {
			s.Put(thePayout, wire(state), 5, "")
			s.Send(thePayout, 5, outcome, executed)
		}
	}
	for name, test := range map[string]struct {
		plant func(s *stage)
		want  []reconcile.Class
		code  int
	}{
		"nothing was begun":      {func(*stage) {}, nil, reconcile.ExitClean},
		"it was paid":            {posted, nil, reconcile.ExitClean},
		"it was declined":        {left(payout.StateFailed, rejected, false), nil, reconcile.ExitClean},
		"submission gone":        {tamper(func(b *model.Books) { b.Submissions = nil }), []reconcile.Class{reconcile.PostedWithoutSubmission, reconcile.RailDiffers}, reconcile.ExitBreaks},
		"submission twice":       {tamper(func(b *model.Books) { b.Submissions = append(b.Submissions, b.Submissions[0]) }), []reconcile.Class{reconcile.DuplicateSubmission}, reconcile.ExitBreaks},
		"transfer twice":         {tamper(func(b *model.Books) { b.Transfers = append(b.Transfers, b.Transfers[0]) }), []reconcile.Class{reconcile.DuplicateAtRail}, reconcile.ExitBreaks},
		"transfer gone":          {tamper(func(b *model.Books) { b.Transfers = nil }), []reconcile.Class{reconcile.RailDiffers}, reconcile.ExitBreaks},
		"transfer of another":    {tamper(func(b *model.Books) { b.Transfers[0].Payout = "nobody" }), []reconcile.Class{reconcile.RailDiffers}, reconcile.ExitBreaks},
		"amount at the rail":     {tamper(func(b *model.Books) { b.Transfers[0].Amount++ }), []reconcile.Class{reconcile.AmountDiffers}, reconcile.ExitBreaks},
		"amount at the proxy":    {tamper(func(b *model.Books) { b.Submissions[0].Amount++ }), []reconcile.Class{reconcile.AmountDiffers}, reconcile.ExitBreaks},
		"balance":                {tamper(func(b *model.Books) { *b.Balances[0]++ }), []reconcile.Class{reconcile.LedgerUnbalanced}, reconcile.ExitBreaks},
		"declined, but paid":     {tamper(func(b *model.Books) { b.Submissions[0].Outcome = rejected }), []reconcile.Class{reconcile.RailDiffers, reconcile.StateDiffers}, reconcile.ExitBreaks},
		"entries of none":        {tamper(func(b *model.Books) { b.Payouts = nil }), []reconcile.Class{reconcile.UnknownPayout}, reconcile.ExitBreaks},
		"entries too early":      {tamper(func(b *model.Books) { b.Payouts[0].State = wire(payout.StateRailAcked) }), []reconcile.Class{reconcile.AckedNotPosted, reconcile.LedgerUnbalanced}, reconcile.ExitBreaks},
		"entries missing":        {func(s *stage) { posted(s); s.DropEntries() }, []reconcile.Class{reconcile.LedgerUnbalanced}, reconcile.ExitBreaks},
		"failed, but taken":      {left(payout.StateFailed, acked, true), []reconcile.Class{reconcile.AckedNotPosted}, reconcile.ExitBreaks},
		"failed, fate unknown":   {left(payout.StateFailed, unknown, false), []reconcile.Class{reconcile.StateDiffers}, reconcile.ExitBreaks},
		"failed, never sent":     {func(s *stage) { s.Put(thePayout, wire(payout.StateFailed), 5, "") }, []reconcile.Class{reconcile.StateDiffers}, reconcile.ExitBreaks},
		"abandoned, but taken":   {left(payout.StateAbandoned, acked, true), []reconcile.Class{reconcile.AckedNotPosted}, reconcile.ExitBreaks},
		"abandoned, but sent":    {left(payout.StateAbandoned, rejected, false), []reconcile.Class{reconcile.StateDiffers}, reconcile.ExitBreaks},
		"claimed, but sent":      {left(payout.StateClaimed, rejected, false), []reconcile.Class{reconcile.StateDiffers}, reconcile.ExitBreaks},
		"pending, but sent":      {left(payout.StatePending, rejected, false), []reconcile.Class{reconcile.StateDiffers}, reconcile.ExitBreaks},
		"acked and left":         {left(payout.StateRailSubmitted, acked, true), []reconcile.Class{reconcile.AckedNotPosted}, reconcile.ExitBreaks},
		"claimed and left":       {func(s *stage) { s.Put(thePayout, wire(payout.StateClaimed), 5, "") }, []reconcile.Class{reconcile.Stuck}, reconcile.ExitBreaks},
		"declined and left":      {left(payout.StateRailSubmitted, rejected, false), []reconcile.Class{reconcile.Stuck}, reconcile.ExitBreaks},
		"sent and left":          {left(payout.StateRailSubmitted, unknown, false), []reconcile.Class{reconcile.Ambiguous}, reconcile.ExitAmbiguous},
		"taken and left":         {left(payout.StateRailSubmitted, unknown, true), []reconcile.Class{reconcile.AckedNotPosted}, reconcile.ExitBreaks},
		"ambiguous, no evidence": {left(payout.StateRailAmbiguous, unknown, false), []reconcile.Class{reconcile.Ambiguous}, reconcile.ExitAmbiguous},
		"ambiguous, evidence":    {left(payout.StateRailAmbiguous, unknown, true), nil, reconcile.ExitClean},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newStage(t)
			test.plant(s)
			before := s.State(thePayout)
			code, report := s.reconcile(t)
			if got := classes(report); !slices.Equal(got, test.want) || code != test.code {
				t.Errorf("code %d, found %v, want %d, %v: %+v", code, got, test.code, test.want, report.Findings)
			}
			if name == "ambiguous, evidence" {
				s.wantPosted(t)
				if len(report.Resolved) != 1 || report.Resolved[0].Outcome != payout.Posted {
					t.Errorf("resolved %+v", report.Resolved)
				}
			} else if after := s.State(thePayout); after != before {
				t.Errorf("the payout was %v and is %v: nothing was to be repaired", before, after)
			}
		})
	}
}

// TestReconcileBlamesNobodyWhoIsAtWork runs it again and again beside a fleet that executes, declines, and loses answers.
func TestReconcileBlamesNobodyWhoIsAtWork(t *testing.T) {
	t.Parallel()
	s := emptyStage(t)
	s.crowd(6, 20)
	for range 2 {
		s.pool(t, 4, 100*time.Millisecond, s.ports(t))
	}
	rounds := 0
	for s.Backlog() > 0 {
		code, report := s.reconcile(t)
		if code != reconcile.ExitClean {
			t.Fatalf("code %d: %+v", code, report.Findings)
		}
		rounds++
	}
	t.Logf("%d comparisons", rounds)
	code, report := s.reconcile(t)
	if code != reconcile.ExitClean || report.Payouts[payout.StatePosted] != 120 || *report.Transfers != 120 || report.Groups != 120 {
		t.Errorf("code %d: %+v", code, report)
	}
}

// TestReconcileLeavesWhatIsInWork: the account is locked by somebody.
func TestReconcileLeavesWhatIsInWork(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	s.Put(thePayout, wire(payout.StateClaimed), 5, "")
	p := s.ports(t)
	if _, err := p.locks.TryAcquire(t.Context(), theAccount); err != nil {
		t.Fatal(err)
	}
	code, report := s.reconcile(t)
	if code != reconcile.ExitClean || len(report.InWork) != 1 {
		t.Errorf("code %d: %+v", code, report)
	}
}

// TestReconcileIsNotInItsOwnWay: several payouts of one account need its lock.
func TestReconcileIsNotInItsOwnWay(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	const doubtful = 12
	for i := range doubtful {
		id := fmt.Sprint("doubtful-", i)
		s.Ask(id, theAccount, 1, "bob")
		s.Put(id, wire(payout.StateRailAmbiguous), 5, "")
		s.Send(id, 5, unknown, false)
	}
	code, report := s.reconcile(t)
	if code != reconcile.ExitAmbiguous || len(report.Findings) != doubtful || len(report.InWork) != 0 {
		t.Errorf("code %d: %d findings, in work %+v", code, len(report.Findings), report.InWork)
	}
}

// TestReconcileReleasesWhatItHasLocked: an executor may go on at once.
func TestReconcileReleasesWhatItHasLocked(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	s.Put(thePayout, wire(payout.StateClaimed), 5, "")
	s.reconcile(t)
	p := s.ports(t)
	got, err := p.locks.TryAcquire(t.Context(), theAccount)
	if err != nil {
		t.Fatalf("the lock %s: %v", locks.Key(theAccount), err)
	}
	if err := got.Release(t.Context()); err != nil {
		t.Error(err)
	}
}

func TestReconcileSaysWhyItCouldNotCompare(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		down func(s *stage)
		args []string
		code int
		says string
	}{
		"no payment resource": {down: func(s *stage) { s.Down(model.Payments, true) }, code: executor.ExitNotCompared, says: "list payouts"},
		"no proxy":            {down: func(s *stage) { s.Down(model.Rail, true) }, code: executor.ExitNotCompared, says: "list submissions"},
		"no listing":          {args: []string{"--payout.rail-log=http://127.0.0.1:1"}, code: executor.ExitNotCompared, says: "list transfers"},
		"no such listing":     {args: []string{"--payout.rail-log=http://{services}/nowhere"}, code: executor.ExitNotCompared, says: "404"},
		"bad key":             {args: []string{"--payout.concurrency=0"}, code: program.ExitConfig, says: "payout.concurrency"},
		"unknown flag":        {args: []string{"--jason"}, code: program.ExitConfig, says: "jason"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newStage(t)
			if test.down != nil {
				test.down(s)
			}
			args := s.at("reconcile")
			for _, arg := range test.args {
				args = append(args, strings.ReplaceAll(arg, "http://{services}", s.services))
			}
			code, out, errs := run(args...)
			if code != test.code || out != "" || !strings.Contains(errs, test.says) || strings.Count(errs, "\n") != 1 {
				t.Errorf("code %d, it says %q and %q", code, out, errs)
			}
		})
	}
}

func TestReconcileReportForPeople(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	s.Put(thePayout, wire(payout.StateClaimed), 5, "")
	code, out, _ := run(s.at("reconcile")...)
	if code != reconcile.ExitBreaks {
		t.Errorf("code %d", code)
	}
	for _, want := range []string{
		"payouts      1, 1 CLAIMED\n", "submissions  0\n", "rail         not compared: payout.rail-log is not set\n",
		"CLASS  PAYOUT  ACCOUNT  STATE    DETAIL\n", "stuck  p1      alice    CLAIMED  somebody has begun it, and nobody is at it\n",
	} {
		if !strings.Contains(out, want) {
			t.Errorf("no %q in:\n%s", want, out)
		}
	}
	if code, out, _ := run("reconcile", "--help"); code != program.ExitOK || !strings.Contains(out, "Exit codes: 0 nothing differs") {
		t.Errorf("code %d, help: %s", code, out)
	}
}
