package judge_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fencelock/fencelock/core/lock"
	"github.com/fencelock/fencelock/tools/drills/judge"
)

// at is a moment of the made-up run.
func at(ms int) time.Time { return time.UnixMilli(int64(ms)) }

// life appends a payout and what a grant does to it: one that is taken at once and released in good order.
func life(e *judge.Evidence, payout string, token lock.Token, ms int, path ...judge.State) {
	const account, amount = "a1", 10
	key, session := judge.KeyOf(account), "s-"+payout
	e.Grants = append(e.Grants, judge.Grant{Key: key, Token: token, Session: session, Server: "one", At: at(ms)})
	e.Releases = append(e.Releases, judge.Release{Key: key, Token: token, Session: session})
	e.Uses = append(e.Uses, judge.Use{Key: key, Token: token, At: at(ms + 5)})
	e.Events = append(e.Events, judge.Event{Payout: payout, Account: account, To: judge.Pending})
	from := judge.Pending
	for i, to := range path {
		fence := token
		if i == 0 {
			fence = token - 1
		}
		e.Events = append(e.Events, judge.Event{Payout: payout, Account: account, From: from, To: to, Token: token, Fence: fence})
		from = to
	}
	e.Payouts = append(e.Payouts, judge.Payout{ID: payout, Account: account, Amount: amount, State: from})
	if slices.Contains(path, judge.Submitted) {
		e.Submissions = append(e.Submissions, judge.Submission{Payout: payout, Account: account, Token: token})
		e.Transfers = append(e.Transfers, judge.Transfer{Payout: payout, Amount: amount, Taken: from != judge.Failed})
	}
	if from == judge.Posted {
		e.Groups = append(e.Groups, judge.Group{Payout: payout, Entries: 2, Paid: amount})
		move(e, amount)
	}
}

// move is a posting, as the accounts show it.
func move(e *judge.Evidence, amount int64) {
	e.Accounts[0].Balance -= amount
	e.Accounts[0].Entries -= amount
	e.Accounts[1].Balance += amount
	e.Accounts[1].Entries += amount
}

// sound is the evidence of a run without a fault: payouts p1 to p5 of one account.
func sound() *judge.Evidence {
	e := &judge.Evidence{Accounts: []judge.Account{{ID: "a1", Balance: 100, Opening: 100}, {ID: judge.Rail}}}
	life(e, "p1", 11, 100, judge.Claimed, judge.Submitted, judge.Acked, judge.Posted)
	life(e, "p2", 12, 200, judge.Claimed, judge.Submitted, judge.Failed)
	life(e, "p3", 13, 300, judge.Claimed, judge.Abandoned)
	life(e, "p4", 14, 400, judge.Claimed, judge.Submitted, judge.Ambiguous)
	life(e, "p5", 15, 500, judge.Claimed, judge.Submitted, judge.Acked, judge.Posted)
	return e
}

func TestSoundEvidenceHolds(t *testing.T) {
	t.Parallel()
	cases := map[string]func(*judge.Evidence){
		"as it is": func(*judge.Evidence) {},
		"a payout that is taken over": func(e *judge.Evidence) {
			grant(e, 16, "late", 600)
			write(e, "p4", judge.Ambiguous, judge.Ambiguous, 16)
			write(e, "p4", judge.Ambiguous, judge.Failed, 16)
			e.Transfers[2].Taken = false
			e.Payouts[3].State = judge.Failed
		},
		"a payout that nobody has begun": func(e *judge.Evidence) {
			e.Payouts = append(e.Payouts, judge.Payout{ID: "p6", Account: "a1", Amount: 1, State: judge.Pending})
		},
		"a grant that was told twice": func(e *judge.Evidence) { e.Grants = append(e.Grants, e.Grants[4]) },
		"a release that was told late": func(e *judge.Evidence) {
			grant(e, 16, "next", 504) // before the last use of 15, whose session then died
			e.Releases = e.Releases[:4]
		},
		"an old grant whose line is late": func(e *judge.Evidence) { e.Grants[0].At = at(503); e.Grants[0].Server = "two" },
		"equal tokens of two keys": func(e *judge.Evidence) {
			e.Grants = append(e.Grants, judge.Grant{Key: "payout:a2", Token: 15, Session: "other", Server: "one", At: at(500)})
		},
		"lines of two servers, in any order": func(e *judge.Evidence) {
			e.Grants[1], e.Grants[0] = e.Grants[0], e.Grants[1]
			e.Grants[0].Server = "two"
		},
	}
	for name, change := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e := sound()
			change(e)
			for _, f := range judge.Judge(*e) {
				if !f.Holds() {
					t.Errorf("%s looked at %d %s and says: %v", f.Invariant, f.Checked, f.Things, f.Violations)
				}
			}
		})
	}
}

func grant(e *judge.Evidence, token lock.Token, session string, ms int) {
	e.Grants = append(e.Grants, judge.Grant{Key: "payout:a1", Token: token, Session: session, Server: "one", At: at(ms)})
}

func write(e *judge.Evidence, payout string, from, to judge.State, token lock.Token) {
	fence := max(e.Events[len(e.Events)-1].Fence, e.Events[len(e.Events)-1].Token)
	e.Events = append(e.Events, judge.Event{Payout: payout, Account: "a1", From: from, To: to, Token: token, Fence: fence})
}

// planted is a fault in the evidence, and which invariants it breaks.
type planted struct {
	name   string
	breaks string
	change func(*judge.Evidence)
}

// faults are all that are planted.
func faults() []planted { return slices.Concat(orderFaults(), moneyFaults()) }

// moneyFaults are in the ledger and at the rail.
func moneyFaults() []planted {
	return []planted{
		{"four entries", "INV-03", func(e *judge.Evidence) {
			e.Groups[0] = judge.Group{Payout: "p1", Entries: 4, Paid: 20}
			e.Accounts[0].Entries -= 10 // the same balance was written twice
			e.Accounts[1].Entries += 10
			e.Accounts[1].Balance += 10
		}},
		{"one entry", "INV-03", func(e *judge.Evidence) { e.Groups[0].Entries = 1 }},
		{"a group that does not sum to zero", "INV-03", func(e *judge.Evidence) { e.Groups[0].Sum = -1 }},
		{"money that went elsewhere", "INV-03", func(e *judge.Evidence) { e.Groups[0].Paid = 0 }},
		{"entries of a payout that failed", "INV-03", func(e *judge.Evidence) {
			e.Groups = append(e.Groups, judge.Group{Payout: "p2", Entries: 2, Paid: 10})
			move(e, 10)
		}},
		{"a posting that is missing", "INV-03", func(e *judge.Evidence) { e.Groups = e.Groups[1:]; move(e, -10) }},
		{"entries of nobody", "INV-03", func(e *judge.Evidence) { e.Groups = append(e.Groups, judge.Group{Payout: "p9"}) }},
		{"more at the rail than the account ever had", "INV-03", func(e *judge.Evidence) {
			e.Accounts[0].Opening -= 71 // 29, of which the rail took 30; the posted 20 are explained
			e.Accounts[0].Balance -= 71
		}},
		{"a balance that forgot a posting", "INV-03", func(e *judge.Evidence) { e.Accounts[0].Balance += 10 }},
		{"money at the rail that the ledger does not show", "INV-03", func(e *judge.Evidence) { e.Transfers[1].Taken = true }},
		{"a posting that the rail never took", "INV-03", func(e *judge.Evidence) { e.Transfers[0].Taken = false }},
	}
}

// orderFaults are in who wrote and asked, and when.
func orderFaults() []planted {
	return []planted{
		{"a write under an older token", "INV-01 INV-05", func(e *judge.Evidence) {
			grant(e, 16, "late", 600)
			write(e, "p4", judge.Ambiguous, judge.Ambiguous, 16)
			write(e, "p4", judge.Ambiguous, judge.Ambiguous, 14)
		}},
		{"two requests at the rail for one payout", "INV-02 INV-03 INV-07", func(e *judge.Evidence) {
			e.Transfers = append(e.Transfers, e.Transfers[0])
		}},
		{"two submissions and two requests", "INV-02 INV-03", func(e *judge.Evidence) {
			e.Transfers = append(e.Transfers, e.Transfers[3])
			e.Submissions = append(e.Submissions, e.Submissions[3])
		}},
		{"a declined request, asked again", "INV-02 INV-07", func(e *judge.Evidence) {
			e.Transfers = append(e.Transfers, e.Transfers[1])
		}},
		{"a request of another amount", "INV-02 INV-03", func(e *judge.Evidence) { e.Transfers[0].Amount++ }},
		{"a request for nobody", "INV-02 INV-03 INV-07", func(e *judge.Evidence) { e.Transfers[0].Payout = "p9" }},
		{"a token granted twice", "INV-04 INV-06", func(e *judge.Evidence) { grant(e, 15, "thief", 600) }},
		{"a token that goes back", "INV-04", func(e *judge.Evidence) { grant(e, 3, "old", 600) }},
		{"two payouts under one token", "INV-04", func(e *judge.Evidence) {
			write(e, "p4", judge.Ambiguous, judge.Ambiguous, 15)
		}},
		{"a write below a fence that a claim raised", "INV-05", func(e *judge.Evidence) { e.Events[len(e.Events)-1].Fence = 16 }},
		{"a fence that fell", "INV-05", func(e *judge.Evidence) { e.Events[len(e.Events)-1].Fence = 14 }},
		{"a submission below the mark", "INV-05", func(e *judge.Evidence) {
			e.Submissions[0], e.Submissions[3] = e.Submissions[3], e.Submissions[0]
		}},
		{"a grant while another was in use", "INV-06", func(e *judge.Evidence) { e.Grants[1].At = at(102) }},
		{"two lock services", "INV-06", func(e *judge.Evidence) {
			e.Grants = append(e.Grants, judge.Grant{Key: "payout:a1", Token: 2, Session: "there", Server: "two", At: at(502)})
			e.Releases = append(e.Releases, judge.Release{Key: "payout:a1", Token: 2, Session: "there"})
			e.Uses = append(e.Uses, judge.Use{Key: "payout:a1", Token: 2, At: at(504)})
		}},
		{"a write without a grant", "INV-07", func(e *judge.Evidence) { write(e, "p4", judge.Ambiguous, judge.Ambiguous, 99) }},
		{"a write under a token of another account", "INV-07", func(e *judge.Evidence) { e.Grants[4].Key = "payout:a2" }},
		{"a submission without a grant", "INV-07", func(e *judge.Evidence) { e.Submissions[3].Token = 99 }},
		{"a request without a submission", "INV-07", func(e *judge.Evidence) { e.Submissions = e.Submissions[1:] }},
		{"a write after the end", "INV-08", func(e *judge.Evidence) {
			grant(e, 16, "late", 600)
			write(e, "p3", judge.Abandoned, judge.Submitted, 16)
			e.Payouts[2].State = judge.Submitted
		}},
		{"a write of the same end again", "INV-08", func(e *judge.Evidence) { write(e, "p5", judge.Posted, judge.Posted, 15) }},
		{"a step that is not listed", "INV-08", func(e *judge.Evidence) {
			grant(e, 16, "late", 600)
			write(e, "p4", judge.Ambiguous, judge.Claimed, 16)
			write(e, "p4", judge.Claimed, judge.Submitted, 16)
			e.Payouts[3].State = judge.Submitted
		}},
		{"a write from another state", "INV-08", func(e *judge.Evidence) {
			grant(e, 16, "late", 600)
			write(e, "p4", judge.Submitted, judge.Acked, 16)
			e.Payouts[3].State = judge.Acked
		}},
		{"a history without its begin", "INV-08", func(e *judge.Evidence) { e.Events = e.Events[2:] }},
		{"a row that the history does not explain", "INV-08", func(e *judge.Evidence) { e.Payouts[3].State = judge.Submitted }},
	}
}

func TestPlantedFaultsAreFound(t *testing.T) {
	t.Parallel()
	missed := map[string]bool{}
	for _, f := range judge.Judge(*sound()) {
		missed[f.Invariant] = true
	}
	for _, p := range faults() {
		e := sound()
		p.change(e)
		broken := judge.Broken(judge.Judge(*e))
		for _, invariant := range broken {
			delete(missed, invariant)
		}
		// A write out of order breaks what else it must break; here it is named in full.
		if got := strings.Join(broken, " "); got != p.breaks {
			t.Errorf("%s: breaks %q; want %q", p.name, got, p.breaks)
		}
	}
	if len(missed) > 0 {
		t.Errorf("no fault broke %v", missed)
	}
}

func TestNothingToLookAtIsNoProof(t *testing.T) {
	t.Parallel()
	findings := judge.Judge(judge.Evidence{})
	for _, f := range findings {
		if f.Holds() {
			t.Errorf("%s holds of nothing", f.Invariant)
		}
	}
	if judge.Sound(findings) {
		t.Error("no evidence is sound")
	}
	if len(findings) != 8 {
		t.Errorf("%d findings; want 8", len(findings))
	}
}

func TestPrintShowsTheFirstViolations(t *testing.T) {
	t.Parallel()
	f := judge.Finding{Invariant: "INV-09", Claim: "all is well", Checked: 7, Things: "things"}
	for i := range 8 {
		f.Violations = append(f.Violations, fmt.Sprintf("thing %d is not well", i))
	}
	var text strings.Builder
	if err := judge.Print(&text, []judge.Finding{f, {Invariant: "INV-10"}, {Invariant: "INV-11", Checked: 1}}); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"BROKEN", "thing 4 is not well", "and 3 more", "NOT SHOWN", "holds"} {
		if !strings.Contains(text.String(), want) {
			t.Errorf("no %q in:\n%s", want, text.String())
		}
	}
	if strings.Contains(text.String(), "thing 5") {
		t.Errorf("too much in:\n%s", text.String())
	}
}
