package experiment

import (
	"fmt"
	"strings"
)

// Position is how the switches stand.
type Position struct {
	// Payment: payment.fencing.enabled. Rail: rail.proxy.fencing.enabled.
	Payment, Rail bool
}

// Positions are all four, the unprotected one first.
func Positions() []Position {
	return []Position{{}, {Rail: true}, {Payment: true}, {Payment: true, Rail: true}}
}

// String names the position.
func (p Position) String() string {
	word := map[bool]string{true: "on", false: "off"}
	return fmt.Sprintf("payment %-3s  rail %s", word[p.Payment], word[p.Rail])
}

// Site is where the call of the frozen executor is held.
type Site string

// The sites.
const (
	AtRail   Site = "rail"
	AtLedger Site = "ledger"
)

// Sites are both.
func Sites() []Site { return []Site{AtRail, AtLedger} }

// The resources that can refuse, as the label of lock_fenced_out_total names them.
const (
	byRail    = "rail"
	byLedger  = "ledger"
	byAccount = "account"
)

// Outcome is what came of one payout.
type Outcome struct {
	// Answer is what the held call got: "OK", or the code of its refusal, such as "FENCED_OUT".
	Answer string
	// Requests is how many requests the rail had for the payout.
	Requests int
	// Balanced: the payout has two entries, and the account's balance is its opening balance and its entries.
	Balanced bool
	// Fenced is the resource that refused the frozen executor; empty if none did. It was refused if the executor said
	// so in its log and the resource counted it: see [Run.Counted].
	Fenced string
}

// String tells the outcome in a line.
func (o Outcome) String() string {
	ledger, fenced := "ledger balanced", "nobody was refused"
	if !o.Balanced {
		ledger = "ledger UNBALANCED"
	}
	if o.Fenced != "" {
		fenced = "fenced out by the " + o.Fenced
	}
	requests := "1 rail request"
	if o.Requests != 1 {
		requests = fmt.Sprintf("%d rail requests", o.Requests)
	}
	return strings.Join([]string{requests, ledger, "late call " + o.Answer, fenced}, ", ")
}

// Expect is what must come of a site in a position. A fence protects only what stands behind it: that of the rail does
// not save the ledger, and that of the payments does not save the rail, it only stops the executor afterwards.
func Expect(p Position, s Site) Outcome {
	const ok, refused = "OK", "FENCED_OUT"
	switch {
	case s == AtRail && p.Rail:
		return Outcome{Answer: refused, Requests: 1, Balanced: true, Fenced: byRail}
	case s == AtRail && p.Payment:
		return Outcome{Answer: ok, Requests: 2, Balanced: true, Fenced: byAccount}
	case s == AtRail:
		return Outcome{Answer: ok, Requests: 2}
	case p.Payment:
		return Outcome{Answer: refused, Requests: 1, Balanced: true, Fenced: byLedger}
	default:
		return Outcome{Answer: ok, Requests: 1}
	}
}

// Run is one payout of one run: what had to be shown, and what was seen.
type Run struct {
	Position Position
	Site     Site
	Number   int

	// Trouble is what kept the run from its end, such as a program that did not start.
	Trouble string
	// Held: the call was kept on its way.
	Held bool
	// Dead: while A was frozen its lock was granted to B, so that A's session was over.
	Dead bool
	// Finished: B brought the payout to its end before A was thawed.
	Finished bool
	// Delivered: the service answered the held call after that.
	Delivered bool
	// Ended: A ended by itself when it was asked to.
	Ended bool
	// Counted: the resource that refused has counted it, and no other has counted more than it should.
	Counted bool

	Outcome
}

// Verdict says what a run is worth.
type Verdict int

// The verdicts.
const (
	// Inconclusive: the run has not come to the point.
	Inconclusive Verdict = iota
	// AsExpected: it has, and what was seen is what must be.
	AsExpected
	// Wrong: it has, and it is not.
	Wrong
)

// String names the verdict.
func (v Verdict) String() string {
	switch v {
	case AsExpected:
		return "as expected"
	case Wrong:
		return "NOT as expected"
	case Inconclusive:
	}
	return "inconclusive"
}

// Judge returns the verdict of the run and why, where it is not as expected.
func (r Run) Judge() (Verdict, string) {
	if r.Trouble != "" {
		return Inconclusive, r.Trouble
	}
	for _, step := range []struct {
		shown bool
		not   string
	}{
		{r.Held, "no call was held"},
		{r.Dead, "A was not frozen past the death of its session"},
		{r.Finished, "B had not finished when A was thawed"},
		{r.Delivered, "the held call was never delivered"},
		{r.Ended, "A did not end by itself"},
	} {
		if !step.shown {
			return Inconclusive, step.not
		}
	}
	want := Expect(r.Position, r.Site)
	switch {
	case r.Outcome != want:
		return Wrong, fmt.Sprintf("%v; expected: %v", r.Outcome, want)
	case !r.Counted:
		return Wrong, fmt.Sprintf("%v; but lock_fenced_out_total does not say so", r.Outcome)
	}
	return AsExpected, ""
}
