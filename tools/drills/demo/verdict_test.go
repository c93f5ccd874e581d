package demo_test

import (
	"strings"
	"testing"
	"time"

	"github.com/fencelock/fencelock/tools/drills/demo"
	"github.com/fencelock/fencelock/tools/drills/judge"
	"github.com/fencelock/fencelock/tools/drills/metrics"
	"github.com/fencelock/fencelock/tools/drills/stack"
)

func scrapes() map[string]metrics.Scrape {
	return map[string]metrics.Scrape{
		"payment-resource": {`lock_fenced_out_total{resource="account"}`: 0, `lock_fenced_out_total{resource="ledger"}`: 0},
		"rail-proxy":       {`lock_fenced_out_total{resource="rail"}`: 0, `rail_duplicate_attempted_total`: 0},
		"lockserver":       {`lock_held_current{backend="etcd"}`: 3},
	}
}

// healthy is a result that is as it must be.
func healthy() demo.Result {
	r := demo.Result{First: scrapes(), Last: scrapes(), Took: 3 * time.Second}
	r.Payouts = []stack.Payout{{Payout: judge.Payout{ID: "p1", State: judge.Posted}}}
	r.Evidence.Transfers = []judge.Transfer{{Payout: "p1", Amount: 5, Taken: true}}
	r.Evidence.Groups = []judge.Group{{Payout: "p1", Entries: 2, Paid: 5}}
	r.Findings = []judge.Finding{{Invariant: "INV-01", Checked: 1}}
	return r
}

func TestVerdicts(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		fault string
		spoil func(*demo.Result)
	}{
		{"", func(*demo.Result) {}},
		{"payout p1 is FAILED", func(r *demo.Result) { r.Payouts[0].State = judge.Failed }},
		{"there are no payouts", func(r *demo.Result) { r.Payouts = nil }},
		{"2 requests at the rail for 1 payouts", func(r *demo.Result) { r.Evidence.Transfers = append(r.Evidence.Transfers, r.Evidence.Transfers...) }},
		{"INV-01 does not hold", func(r *demo.Result) { r.Findings[0].Violations = []string{"two mutators"} }},
		{"INV-01 does not hold", func(r *demo.Result) { r.Findings[0].Checked = 0 }},
		{"nothing was judged", func(r *demo.Result) { r.Findings = nil }},
		{`last scrape: lock_fenced_out_total{resource="rail"} of rail-proxy is 1`, func(r *demo.Result) {
			r.Last["rail-proxy"][`lock_fenced_out_total{resource="rail"}`] = 1
		}},
		{`first scrape: nobody exposes rail_duplicate_attempted_total`, func(r *demo.Result) {
			delete(r.First["rail-proxy"], "rail_duplicate_attempted_total")
		}},
	} {
		r := healthy()
		c.spoil(&r)
		if got := strings.Join(r.Faults(), "; "); c.fault == "" && got != "" || !strings.Contains(got, c.fault) {
			t.Errorf("faults %q; want %q", got, c.fault)
		}
		var text strings.Builder
		if err := r.Print(&text); err != nil {
			t.Fatal(err)
		}
		if sound := strings.Contains(text.String(), "\nSOUND: "); sound != (c.fault == "") {
			t.Errorf("with the fault %q it prints:\n%s", c.fault, text.String())
		}
	}
}
