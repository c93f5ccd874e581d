package reconcile

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"text/tabwriter"

	"github.com/fencelock/fencelock/apps/payout-executor/internal/payout"
)

// Class is a kind of finding.
type Class string

// The classes. All but FundsReserved and Ambiguous are breaks.
const (
	// PostedWithoutSubmission: it counts as paid, and the proxy never sent it.
	PostedWithoutSubmission Class = "posted_without_submission"
	// AckedNotPosted: the rail has taken it, and nobody is about to write it into the ledger.
	AckedNotPosted Class = "acked_not_posted"
	// StateDiffers: the payout's state and the record of its submission contradict each other in another way.
	StateDiffers Class = "state_differs"
	// DuplicateSubmission: the proxy has sent it more than once.
	DuplicateSubmission Class = "duplicate_submission"
	// DuplicateAtRail: the rail has executed it more than once.
	DuplicateAtRail Class = "duplicate_at_rail"
	// RailDiffers: the rail's own listing and the proxy's record contradict each other.
	RailDiffers Class = "rail_differs"
	// AmountDiffers: payout, submission, transfer and ledger do not have the same amount.
	AmountDiffers Class = "amount_differs"
	// LedgerUnbalanced: entries that do not add up, or are missing, or should not be there.
	LedgerUnbalanced Class = "ledger_unbalanced"
	// UnknownPayout: something refers to a payout that there is not.
	UnknownPayout Class = "unknown_payout"
	// Stuck: somebody has begun it, and nobody is at it.
	Stuck Class = "stuck"
	// FundsReserved: it waits, since the rail may have taken the account's money for other payouts.
	FundsReserved Class = "funds_reserved"
	// Ambiguous: the rail was called, and there is no evidence of what it did.
	Ambiguous Class = "ambiguous"
)

// Classes are all of them, in the order in which a report shows them.
func Classes() []Class {
	return []Class{
		DuplicateAtRail, DuplicateSubmission, PostedWithoutSubmission, AckedNotPosted, StateDiffers, RailDiffers, AmountDiffers,
		LedgerUnbalanced, UnknownPayout, Stuck, FundsReserved, Ambiguous,
	}
}

// Exit codes of a comparison.
const (
	ExitClean  = 0
	ExitBreaks = 1
	// ExitWaiting: nothing but payouts that wait for evidence, or for that of others.
	ExitWaiting = 3
)

// Finding is something that does not fit.
type Finding struct {
	Class   Class        `json:"class"`
	Payout  string       `json:"payout,omitempty"`
	Account string       `json:"account,omitempty"`
	State   payout.State `json:"state,omitempty"`
	Detail  string       `json:"detail"`
}

// Resolution is a payout that was ambiguous, and is not any more.
type Resolution struct {
	Payout  string         `json:"payout"`
	Account string         `json:"account"`
	Outcome payout.Outcome `json:"outcome"`
}

// InWork is a payout that somebody is at.
type InWork struct {
	Payout  string `json:"payout"`
	Account string `json:"account"`
}

// Report is what a comparison came to.
type Report struct {
	// Payouts and Submissions count what was compared.
	Payouts     map[payout.State]int             `json:"payouts"`
	Submissions map[payout.SubmissionOutcome]int `json:"submissions"`
	// Groups is how many payouts the ledger has entries of.
	Groups int `json:"ledger_groups"`
	// Transfers is how many the rail itself has executed; absent if its listing was not compared.
	Transfers *int         `json:"transfers,omitempty"`
	Findings  []Finding    `json:"findings"`
	Resolved  []Resolution `json:"resolved"`
	InWork    []InWork     `json:"in_work"`
}

// ExitCode is [ExitBreaks] if there is a finding that is a break, else [ExitWaiting] if there is one at all, else [ExitClean].
func (r Report) ExitCode() int {
	code := ExitClean
	for _, f := range r.Findings {
		if f.Class != Ambiguous && f.Class != FundsReserved {
			return ExitBreaks
		}
		code = ExitWaiting
	}
	return code
}

// sort puts findings in order, so that reports of one state are alike. It changes the slices, not the report.
func (r Report) sort() {
	classes := Classes()
	slices.SortFunc(r.Findings, func(a, b Finding) int {
		return cmp.Or(
			slices.Index(classes, a.Class)-slices.Index(classes, b.Class),
			cmp.Compare(a.Account, b.Account), cmp.Compare(a.Payout, b.Payout), cmp.Compare(a.Detail, b.Detail),
		)
	})
	slices.SortFunc(r.Resolved, func(a, b Resolution) int { return cmp.Compare(a.Payout, b.Payout) })
	slices.SortFunc(r.InWork, func(a, b InWork) int { return cmp.Compare(a.Payout, b.Payout) })
}

// JSON writes the report as one object.
func (r Report) JSON(w io.Writer) error {
	encoder := json.NewEncoder(w)
	encoder.SetIndent("", "  ")
	if err := encoder.Encode(r); err != nil {
		return fmt.Errorf("write report: %w", err)
	}
	return nil
}

// Text writes the report for people.
func (r Report) Text(w io.Writer) error {
	out := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	line := func(cells ...any) { _, _ = fmt.Fprintln(out, cells...) } // Flush tells
	line(counts("payouts", r.Payouts))
	line(counts("submissions", r.Submissions))
	line(fmt.Sprintf("ledger\t%d payouts with entries", r.Groups))
	if r.Transfers == nil {
		line("rail\tnot compared: payout.rail-log is not set")
	} else {
		line(fmt.Sprintf("rail\t%d executed", *r.Transfers))
	}
	for _, f := range r.Resolved {
		line(fmt.Sprintf("resolved\t%s of %s: %s", f.Payout, f.Account, f.Outcome))
	}
	for _, f := range r.InWork {
		line(fmt.Sprintf("in work\t%s of %s", f.Payout, f.Account))
	}
	if len(r.Findings) == 0 {
		line("\nnothing differs")
	} else {
		line("\nCLASS\tPAYOUT\tACCOUNT\tSTATE\tDETAIL")
	}
	for _, f := range r.Findings {
		line(fmt.Sprintf("%s\t%s\t%s\t%s\t%s", f.Class, dash(f.Payout), dash(f.Account), dash(string(f.State)), f.Detail))
	}
	if err := out.Flush(); err != nil {
		return fmt.Errorf("write report: %w", err)
	}
	return nil
}

func counts[K ~string](what string, of map[K]int) string {
	text, total := "", 0
	for _, key := range slices.Sorted(maps.Keys(of)) {
		total += of[key]
		text += fmt.Sprintf(", %d %s", of[key], key)
	}
	return fmt.Sprintf("%s\t%d%s", what, total, text)
}

func dash(text string) string {
	if text == "" {
		return "-"
	}
	return text
}
