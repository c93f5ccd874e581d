package outage_test

import (
	"strings"
	"testing"
	"time"

	"github.com/fencelock/fencelock/tools/drills/judge"
	"github.com/fencelock/fencelock/tools/drills/outage"
	"github.com/fencelock/fencelock/tools/drills/stack"
)

func TestVerdicts(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		fault string
		spoil func(*outage.Result)
	}{
		{"", func(*outage.Result) {}},
		{"nothing was shown", func(r *outage.Result) { r.Waiting = 0 }},
		{"nothing was shown", func(r *outage.Result) { r.Watched = 0 }},
		{"2 writes or requests", func(r *outage.Result) { r.Back = 9 }},
		{"1 payouts are RAIL_SUBMITTED", func(r *outage.Result) { r.Payouts[0].State = judge.Submitted }},
		{"INV-07 does not hold", func(r *outage.Result) { r.Findings[0].Violations = []string{"no grant"} }},
		{"nothing was judged", func(r *outage.Result) { r.Findings = nil }},
		{"nothing was judged", func(r *outage.Result) { r.Payouts = nil }},
		{"rail_duplicate_attempted_total is 1", func(r *outage.Result) { r.Duplicates = 1 }},
	} {
		r := outage.Result{
			Waiting: 3, Quiet: 7, Back: 7, Watched: time.Second,
			Payouts:  []stack.Payout{{Payout: judge.Payout{State: judge.Posted}}},
			Findings: []judge.Finding{{Invariant: "INV-07", Checked: 1}},
		}
		c.spoil(&r)
		got := strings.Join(r.Faults(), "; ")
		if c.fault == "" && got != "" || !strings.Contains(got, c.fault) {
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
