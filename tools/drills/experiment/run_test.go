package experiment_test

import (
	"strings"
	"testing"

	"github.com/fencelock/fencelock/tools/drills/experiment"
)

// made is a run of a position and site that came to the point and is as expected.
func made(p experiment.Position, s experiment.Site, number int) experiment.Run {
	return experiment.Run{
		Position: p, Site: s, Number: number,
		Held: true, Dead: true, Finished: true, Delivered: true, Ended: true, Counted: true,
		Outcome: experiment.Expect(p, s),
	}
}

// all are runs of every position and site, as expected.
func all(each int) []experiment.Run {
	var runs []experiment.Run
	for _, p := range experiment.Positions() {
		for _, s := range experiment.Sites() {
			for n := range each {
				runs = append(runs, made(p, s, n+1))
			}
		}
	}
	return runs
}

func TestAFenceProtectsOnlyWhatStandsBehindIt(t *testing.T) {
	t.Parallel()
	off, rail, payment, both := experiment.Position{}, experiment.Position{Rail: true},
		experiment.Position{Payment: true}, experiment.Position{Payment: true, Rail: true}
	for _, c := range []struct {
		position experiment.Position
		site     experiment.Site
		want     experiment.Outcome
	}{
		{off, experiment.AtRail, experiment.Outcome{Answer: "OK", Requests: 2}},
		{off, experiment.AtLedger, experiment.Outcome{Answer: "OK", Requests: 1}},
		{rail, experiment.AtRail, experiment.Outcome{Answer: "FENCED_OUT", Requests: 1, Balanced: true, Fenced: "rail"}},
		{rail, experiment.AtLedger, experiment.Outcome{Answer: "OK", Requests: 1}},
		{payment, experiment.AtRail, experiment.Outcome{Answer: "OK", Requests: 2, Balanced: true, Fenced: "account"}},
		{payment, experiment.AtLedger, experiment.Outcome{Answer: "FENCED_OUT", Requests: 1, Balanced: true, Fenced: "ledger"}},
		{both, experiment.AtRail, experiment.Outcome{Answer: "FENCED_OUT", Requests: 1, Balanced: true, Fenced: "rail"}},
		{both, experiment.AtLedger, experiment.Outcome{Answer: "FENCED_OUT", Requests: 1, Balanced: true, Fenced: "ledger"}},
	} {
		if got := experiment.Expect(c.position, c.site); got != c.want {
			t.Errorf("%v, site %s: %+v; want %+v", c.position, c.site, got, c.want)
		}
	}
}

func TestVerdictsOfMadeUpRuns(t *testing.T) {
	t.Parallel()
	both := experiment.Position{Payment: true, Rail: true}
	for _, c := range []struct {
		name     string
		position experiment.Position
		site     experiment.Site
		change   func(*experiment.Run)
		want     experiment.Verdict
		why      string
	}{
		{"as it must be", both, experiment.AtRail, func(*experiment.Run) {}, experiment.AsExpected, ""},
		{"a program did not start", both, experiment.AtRail, func(r *experiment.Run) { r.Trouble = "no A" }, experiment.Inconclusive, "no A"},
		{"nothing was held", both, experiment.AtRail, func(r *experiment.Run) { r.Held = false }, experiment.Inconclusive, "no call was held"},
		{"A was thawed too soon", both, experiment.AtRail, func(r *experiment.Run) { r.Dead = false }, experiment.Inconclusive, "frozen past"},
		{"B had not finished", both, experiment.AtRail, func(r *experiment.Run) { r.Finished = false }, experiment.Inconclusive, "not finished"},
		{"the call never arrived", both, experiment.AtRail, func(r *experiment.Run) { r.Delivered = false }, experiment.Inconclusive, "never delivered"},
		{"A hangs", both, experiment.AtRail, func(r *experiment.Run) { r.Ended = false }, experiment.Inconclusive, "did not end"},
		{"not to the point, and wrong", both, experiment.AtRail, func(r *experiment.Run) { r.Held, r.Requests = false, 2 }, experiment.Inconclusive, "no call was held"},
		{"two requests behind a fence", both, experiment.AtRail, func(r *experiment.Run) { r.Requests = 2 }, experiment.Wrong, "2 rail requests"},
		{"no request at all", both, experiment.AtRail, func(r *experiment.Run) { r.Requests = 0 }, experiment.Wrong, "0 rail requests"},
		{"an unbalanced ledger behind a fence", both, experiment.AtLedger, func(r *experiment.Run) { r.Balanced = false }, experiment.Wrong, "UNBALANCED"},
		{"the late call passed a fence", both, experiment.AtLedger, func(r *experiment.Run) { r.Answer = "OK" }, experiment.Wrong, "late call OK"},
		{"refused for another reason", both, experiment.AtRail, func(r *experiment.Run) { r.Answer = "DUPLICATE" }, experiment.Wrong, "DUPLICATE"},
		{"the executor does not know", both, experiment.AtRail, func(r *experiment.Run) { r.Fenced = "" }, experiment.Wrong, "nobody was refused"},
		{"refused elsewhere", both, experiment.AtRail, func(r *experiment.Run) { r.Fenced = "account" }, experiment.Wrong, "by the account"},
		{"nobody counted", both, experiment.AtRail, func(r *experiment.Run) { r.Counted = false }, experiment.Wrong, "lock_fenced_out_total"},
		{"no harm without a fence", experiment.Position{}, experiment.AtRail, func(r *experiment.Run) { r.Requests, r.Balanced = 1, true }, experiment.Wrong, "expected: 2 rail requests"},
		{"no harm to an open ledger", experiment.Position{Rail: true}, experiment.AtLedger, func(r *experiment.Run) { r.Balanced = true }, experiment.Wrong, "expected: 1 rail request, ledger UNBALANCED"},
	} {
		r := made(c.position, c.site, 1)
		c.change(&r)
		if got, why := r.Judge(); got != c.want || !strings.Contains(why, c.why) {
			t.Errorf("%s: %v, %q; want %v, %q", c.name, got, why, c.want, c.why)
		}
	}
}

// report is made of runs in which all is as expected.
func report(each int) experiment.Report {
	r := experiment.Report{Each: each, Runs: all(each), Broken: map[experiment.Position][]string{}}
	for _, p := range experiment.Positions() {
		r.Broken[p] = experiment.ExpectBroken(p)
	}
	return r
}

func TestOnlyAllRunsAsExpectedPass(t *testing.T) {
	t.Parallel()
	if !report(3).Passed() {
		t.Error("runs as expected do not pass")
	}
	both := experiment.Position{Payment: true, Rail: true}
	for name, spoil := range map[string]func(*experiment.Report){
		"no runs":           func(r *experiment.Report) { r.Runs = nil },
		"none wanted":       func(r *experiment.Report) { r.Runs, r.Each = nil, 0 },
		"one is missing":    func(r *experiment.Report) { r.Runs = r.Runs[1:] },
		"one too many":      func(r *experiment.Report) { r.Runs = append(r.Runs, r.Runs[0]) },
		"one is wrong":      func(r *experiment.Report) { r.Runs[4].Requests = 7 },
		"one shows nothing": func(r *experiment.Report) { r.Runs[5].Dead = false },
		"a wrong one more": func(r *experiment.Report) {
			wrong := r.Runs[0]
			wrong.Requests = 7
			r.Runs = append(r.Runs, wrong)
		},
		"an invariant broke behind fences":      func(r *experiment.Report) { r.Broken[both] = []string{"INV-01"} },
		"the judge saw nothing without a fence": func(r *experiment.Report) { r.Broken[experiment.Position{}] = nil },
		"nobody judged":                         func(r *experiment.Report) { delete(r.Broken, both) },
	} {
		r := report(3)
		spoil(&r)
		if r.Passed() {
			t.Errorf("%s: passes", name)
		}
	}
}

func TestTableNamesEveryRunThatIsNotAsExpected(t *testing.T) {
	t.Parallel()
	r := report(20)
	r.Runs[0].Dead = false  // payment off, rail off, site rail
	r.Runs[25].Requests = 2 // the same, site ledger
	r.Runs = r.Runs[:len(r.Runs)-1]
	r.Broken[experiment.Position{}] = []string{"INV-02"}
	delete(r.Broken, experiment.Position{Rail: true})
	var text strings.Builder
	if err := r.Print(&text); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"payment off  rail off    rail    19 of 20     2 rail requests, ledger UNBALANCED, late call OK, nobody was refused",
		"payment off  rail off    ledger  19 of 20     1 rail request, ledger UNBALANCED, late call OK, nobody was refused; 2 rail requests,",
		"payment on   rail on     rail    20 of 20     1 rail request, ledger balanced, late call FENCED_OUT, fenced out by the rail",
		"run 1, payment off  rail off, site rail: inconclusive: A was not frozen past the death of its session",
		"run 6, payment off  rail off, site ledger: NOT as expected: 2 rail requests",
		"payment on   rail on, site ledger: 1 runs are missing",
		"payment on   rail off    INV-02 INV-03 INV-05",
		"payment on   rail on     none",
		"payment off  rail off: invariants broken: INV-02; expected: INV-01 INV-02 INV-03 INV-05 INV-08",
		"payment off  rail on: the invariants were not judged",
	} {
		if !strings.Contains(text.String(), want) {
			t.Errorf("no %q in\n%s", want, text.String())
		}
	}
}
