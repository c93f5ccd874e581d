package main

import (
	"bytes"
	"encoding/json"
	"flag"
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
	"github.com/fencelock/fencelock/contracts/parity/document"
)

var update = flag.Bool("update", false, "write the checked table of docs/payouts.md")

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

// classes are those of the findings, each once, in the order of their names.
func classes(r reconcile.Report) string {
	var found []string
	for _, f := range r.Findings {
		found = append(found, string(f.Class))
	}
	slices.Sort(found)
	return strings.Join(slices.Compact(found), " ")
}

// finding is something to be planted into books that are sound, and what a comparison says of it.
type finding struct {
	name  string
	plant func(s *stage)
	// want are the classes, in the order of their names.
	want string
	code int
}

// paid brings the payout to its end.
func paid(s *stage) {
	s.Put(thePayout, wire(payout.StateRailAcked), 5, "tr-"+thePayout)
	s.Send(thePayout, 5, acked, true)
	s.Settle(thePayout, 5)
}

// tampered changes the books after the payout was paid.
func tampered(change func(b *model.Books)) func(*stage) {
	return func(s *stage) {
		paid(s)
		s.Tamper(change)
	}
}

// put leaves the payout in a state, without a submission.
func put(state payout.State) func(*stage) {
	return func(s *stage) { s.Put(thePayout, wire(state), 5, "") }
}

// left is put with a submission.
func left(state payout.State, outcome paymentsv1.SubmissionOutcome, executed bool) func(*stage) {
	return func(s *stage) {
		s.Put(thePayout, wire(state), 5, "")
		s.Send(thePayout, 5, outcome, executed)
	}
}

// beside leaves the payout claimed, and another one of its account, of so much, in a state with a submission.
func beside(amount int64, state payout.State, outcome paymentsv1.SubmissionOutcome) func(*stage) {
	return func(s *stage) {
		s.Ask("other", theAccount, amount, "bob")
		s.Put("other", wire(state), 4, "")
		s.Send("other", 4, outcome, outcome == acked)
		s.Put(thePayout, wire(payout.StateClaimed), 5, "")
	}
}

const clean, breaks, waits = reconcile.ExitClean, reconcile.ExitBreaks, reconcile.ExitWaiting

// inTheBooks are findings that one sees in the books alone.
func inTheBooks() []finding {
	return []finding{
		{"nothing was begun", func(*stage) {}, "", clean},
		{"it was paid", paid, "", clean},
		{"it was declined", left(payout.StateFailed, rejected, false), "", clean},
		{"submission gone", tampered(func(b *model.Books) { b.Submissions = nil }), "posted_without_submission rail_differs", breaks},
		{"submission twice", tampered(func(b *model.Books) { b.Submissions = append(b.Submissions, b.Submissions[0]) }), "duplicate_submission", breaks},
		{"transfer twice", tampered(func(b *model.Books) { b.Transfers = append(b.Transfers, b.Transfers[0]) }), "duplicate_at_rail", breaks},
		{"transfer gone", tampered(func(b *model.Books) { b.Transfers = nil }), "rail_differs", breaks},
		{"transfer past the proxy", func(s *stage) {
			s.Tamper(func(b *model.Books) { b.Transfers = []model.Transfer{{Payout: thePayout, Amount: theAmount}} })
		}, "rail_differs", breaks},
		{"declined, but paid", tampered(func(b *model.Books) { b.Submissions[0].Outcome = rejected }), "rail_differs state_differs", breaks},
		{"amount at the rail", tampered(func(b *model.Books) { b.Transfers[0].Amount++ }), "amount_differs", breaks},
		{"amount at the proxy", tampered(func(b *model.Books) { b.Submissions[0].Amount++ }), "amount_differs", breaks},
		{"amount in the ledger", tampered(func(b *model.Books) {
			b.Entries[0].Amount--
			b.Entries[1].Amount++
			*b.Balances[0]--
		}), "amount_differs", breaks},
		{"balance", tampered(func(b *model.Books) { *b.Balances[0]++ }), "ledger_unbalanced", breaks},
		{"entries that do not add up", tampered(func(b *model.Books) {
			b.Entries[0].Amount--
			*b.Balances[0]--
		}), "ledger_unbalanced", breaks},
		{"entries twice", tampered(func(b *model.Books) {
			b.Entries = append(b.Entries, b.Entries...)
			*b.Balances[0] -= theAmount
		}), "ledger_unbalanced", breaks},
		{"entries missing", func(s *stage) { paid(s); s.DropEntries() }, "ledger_unbalanced", breaks},
		{"entries too early", tampered(func(b *model.Books) {
			b.Payouts[0].State = wire(payout.StateRailAcked)
		}), "acked_not_posted ledger_unbalanced", breaks},
		{"everything of no payout", tampered(func(b *model.Books) { b.Payouts = nil }), "unknown_payout", breaks},
		{"transfer of no payout", tampered(func(b *model.Books) {
			b.Transfers = append(b.Transfers, model.Transfer{Payout: "nobody", Amount: 1})
		}), "unknown_payout", breaks},
		{"transfer under another name", tampered(func(b *model.Books) { b.Transfers[0].Payout = "nobody" }), "rail_differs unknown_payout", breaks},
		{"submission of no payout", tampered(func(b *model.Books) {
			b.Submissions = append(b.Submissions, &paymentsv1.Submission{Payout: "nobody", Outcome: rejected})
		}), "unknown_payout", breaks},
		{"entries of no payout", tampered(func(b *model.Books) {
			b.Entries = append(b.Entries, model.Entry{Payout: "nobody", Account: theAccount, Amount: -1}, model.Entry{Payout: "nobody", Account: "rail", Amount: 1})
			*b.Balances[0]--
		}), "unknown_payout", breaks},
	}
}

// inItsState are findings in what a payout's state says.
func inItsState() []finding {
	return []finding{
		{"failed, but taken", left(payout.StateFailed, acked, true), "acked_not_posted", breaks},
		{"failed, fate unknown", left(payout.StateFailed, unknown, false), "state_differs", breaks},
		{"failed, never sent", put(payout.StateFailed), "state_differs", breaks},
		{"abandoned", put(payout.StateAbandoned), "", clean},
		{"abandoned, but taken", left(payout.StateAbandoned, acked, true), "acked_not_posted", breaks},
		{"abandoned, but sent", left(payout.StateAbandoned, rejected, false), "state_differs", breaks},
		{"acked, never sent", put(payout.StateRailAcked), "posted_without_submission stuck", breaks},
		{"ambiguous, never sent", put(payout.StateRailAmbiguous), "ambiguous state_differs", breaks},
		{"claimed, but sent", left(payout.StateClaimed, rejected, false), "state_differs", breaks},
		{"claimed, but sent, fate unknown", left(payout.StateClaimed, unknown, false), "state_differs", breaks},
		{"claimed, but taken", left(payout.StateClaimed, acked, true), "acked_not_posted", breaks},
		{"pending, but sent", left(payout.StatePending, rejected, false), "state_differs", breaks},
		{"pending, but sent, fate unknown", left(payout.StatePending, unknown, false), "state_differs", breaks},
		{"acked and left", left(payout.StateRailSubmitted, acked, true), "acked_not_posted", breaks},
		{"claimed and left", put(payout.StateClaimed), "stuck", breaks},
		{"submitted and left", put(payout.StateRailSubmitted), "stuck", breaks},
		{"declined and left", left(payout.StateRailSubmitted, rejected, false), "stuck", breaks},
		{"sent and left", left(payout.StateRailSubmitted, unknown, false), "ambiguous", waits},
		{"taken and left", left(payout.StateRailSubmitted, unknown, true), "acked_not_posted", breaks},
		{"ambiguous, no evidence", left(payout.StateRailAmbiguous, unknown, false), "ambiguous", waits},
		{"ambiguous, evidence", left(payout.StateRailAmbiguous, unknown, true), "", clean},
		{"its money is reserved", beside(theBalance-theAmount+1, payout.StateRailAmbiguous, unknown), "ambiguous funds_reserved", waits},
		{"its money is reserved by what was left", beside(theBalance, payout.StateRailAcked, acked), "acked_not_posted funds_reserved", breaks},
		{"there is enough beside another", beside(theBalance-theAmount, payout.StateRailAmbiguous, unknown), "ambiguous stuck", breaks},
		{"another took nothing", beside(theBalance, payout.StateFailed, rejected), "stuck", breaks},
		{"money of another account is reserved", func(s *stage) {
			s.Open("rich", theBalance)
			s.Ask("other", "rich", theBalance, "bob")
			s.Put("other", wire(payout.StateRailAmbiguous), 4, "")
			s.Send("other", 4, unknown, false)
			s.Put(thePayout, wire(payout.StateClaimed), 5, "")
		}, "ambiguous stuck", breaks},
		{"the balance is too low", func(s *stage) {
			beside(theBalance, payout.StateRailAmbiguous, unknown)(s)
			s.Tamper(func(b *model.Books) { b.Payouts[0].Amount = theBalance + 1 })
		}, "ambiguous stuck", breaks},
	}
}

// TestReconcileFindsEachBreak plants one at a time.
func TestReconcileFindsEachBreak(t *testing.T) {
	t.Parallel()
	for _, test := range slices.Concat(inTheBooks(), inItsState()) {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			s := newStage(t)
			test.plant(s)
			before := s.State(thePayout)
			code, report := s.reconcile(t)
			if got := classes(report); got != test.want || code != test.code {
				t.Errorf("code %d, found %q, want %d, %q: %+v", code, got, test.code, test.want, report.Findings)
			}
			if test.name == "ambiguous, evidence" {
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

// TestEachClassIsPlanted, alone, so that it is seen that it makes its exit code.
func TestEachClassIsPlanted(t *testing.T) {
	t.Parallel()
	alone := map[string]bool{}
	for _, f := range slices.Concat(inTheBooks(), inItsState()) {
		alone[f.want] = true
	}
	// These two come with others: what was never sent and counts as paid is not at the rail's, and money is reserved by somebody.
	alone["posted_without_submission"] = alone["posted_without_submission rail_differs"]
	alone["funds_reserved"] = alone["ambiguous funds_reserved"]
	for _, class := range reconcile.Classes() {
		if !alone[string(class)] {
			t.Errorf("no test plants %s", class)
		}
	}
}

// TestClassesDocument: the document has each class, in the order of a report.
func TestClassesDocument(t *testing.T) {
	t.Parallel()
	var rows [][]string
	for _, class := range reconcile.Classes() {
		rows = append(rows, []string{document.Code(string(class)), document.Prose})
	}
	document.Table{File: "../../docs/payouts.md", Name: "reconcile-classes", Update: *update}.Check(t, rows)
}

// TestReconcileSaysOnceWhatNamesAnUnknownPayout, however many do.
func TestReconcileSaysOnceWhatNamesAnUnknownPayout(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	paid(s)
	s.Tamper(func(b *model.Books) { b.Payouts = nil })
	_, report := s.reconcile(t)
	if len(report.Findings) != 1 || report.Findings[0].Payout != thePayout {
		t.Fatalf("findings %+v", report.Findings)
	}
	for _, part := range []string{"a submission", "the ledger", "a transfer at the rail"} {
		if !strings.Contains(report.Findings[0].Detail, part) {
			t.Errorf("no %s in %q", part, report.Findings[0].Detail)
		}
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

// TestReconcileSeesWhatWasSentSinceItListed: the listing of submissions is older than what it finds under the lock.
func TestReconcileSeesWhatWasSentSinceItListed(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		listed payout.State
		since  finding
	}{
		{payout.StateRailSubmitted, finding{"sent and left", left(payout.StateRailSubmitted, unknown, false), "ambiguous", waits}},
		{payout.StateRailSubmitted, finding{"taken and left", left(payout.StateRailSubmitted, acked, true), "acked_not_posted", breaks}},
		{payout.StateClaimed, finding{"claimed, then sent and left", left(payout.StateRailSubmitted, unknown, false), "ambiguous", waits}},
		{payout.StateClaimed, finding{"acked and left", left(payout.StateRailAcked, acked, true), "acked_not_posted", breaks}},
		{payout.StateClaimed, finding{"ambiguous", left(payout.StateRailAmbiguous, unknown, false), "ambiguous", waits}},
		{payout.StateClaimed, finding{"paid", paid, "", clean}},
	} {
		t.Run(test.since.name, func(t *testing.T) {
			t.Parallel()
			s := newStage(t)
			put(test.listed)(s)
			s.Weather(func(c model.Call) (p model.Passage) {
				if c.Method == "ListSubmissions" {
					p.After = func() { test.since.plant(s) }
				}
				return p
			})
			code, report := s.reconcile(t)
			if got := classes(report); got != test.since.want || code != test.since.code {
				t.Errorf("code %d, found %q, want %d, %q: %+v", code, got, test.since.code, test.since.want, report.Findings)
			}
		})
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
	if code != reconcile.ExitWaiting || len(report.Findings) != doubtful || len(report.InWork) != 0 {
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
