package reconcile

import (
	"fmt"
	"maps"
	"slices"

	"github.com/fencelock/fencelock/apps/payout-executor/internal/payout"
	"github.com/fencelock/fencelock/apps/payout-executor/internal/remote"
)

// comparison is what the books say of themselves.
type comparison struct {
	findings []Finding
	// doubts are payouts that somebody may be at.
	doubts []payout.Payout
	// unposted are payouts of entries in the ledger that were not POSTED when they were read.
	unposted []string
	// unknown has what refers to names that no payout had.
	unknown map[string][]string
	records map[string]record
}

func compare(b books) comparison {
	c := comparison{records: b.records(), unknown: map[string][]string{}}
	known := map[string]payout.Payout{}
	for _, p := range b.payouts {
		known[p.ID] = p
		c.payout(p)
	}
	for _, id := range slices.Sorted(maps.Keys(c.records)) {
		if _, there := known[id]; !there {
			c.unknown[id] = append(c.unknown[id], "a submission")
		}
		c.amount(known, c.records[id].Amount, id, "the proxy has sent")
	}
	c.ledger(b.ledger, known)
	if b.logged {
		c.rail(b, known)
	}
	return c
}

func (c *comparison) find(class Class, p payout.Payout, detail string, args ...any) {
	c.findings = append(c.findings, found(class, p, detail, args...))
}

func found(class Class, p payout.Payout, detail string, args ...any) Finding {
	return Finding{Class: class, Payout: p.ID, Account: p.Account, State: p.State, Detail: fmt.Sprintf(detail, args...)}
}

// payout compares a payout with its submission, which was read after it.
func (c *comparison) payout(p payout.Payout) {
	sent, there := c.records[p.ID]
	if sent.count > 1 {
		c.find(DuplicateSubmission, p, "the proxy has sent it %d times", sent.count)
	}
	c.findings = append(c.findings, contradictions(p, sent, there)...)
	if p.State.Begun() || p.State == payout.StateRailAmbiguous || p.State == payout.StatePending && there {
		c.doubts = append(c.doubts, p)
	}
}

// contradictions are what cannot be, whoever is at it.
func contradictions(p payout.Payout, sent record, there bool) []Finding {
	switch p.State {
	case payout.StatePosted, payout.StateRailAcked:
		if !there {
			return []Finding{found(PostedWithoutSubmission, p, "the proxy never sent it")}
		}
		if sent.Outcome != payout.Acked {
			return []Finding{found(StateDiffers, p, "the outcome of its submission is %s", sent.Outcome)}
		}
	case payout.StateFailed:
		switch {
		case !there:
			return []Finding{found(StateDiffers, p, "the proxy never sent it")}
		case sent.Outcome == payout.Acked:
			return []Finding{found(AckedNotPosted, p, "the rail has taken it as %q", sent.Reference)}
		case sent.Outcome == payout.Unknown:
			return []Finding{found(StateDiffers, p, "the outcome of its submission is not known")}
		}
	case payout.StateAbandoned:
		switch {
		case there && sent.Outcome == payout.Acked:
			return []Finding{found(AckedNotPosted, p, "the rail has taken it as %q", sent.Reference)}
		case there:
			return []Finding{found(StateDiffers, p, "the proxy has sent it")}
		}
	case payout.StateRailAmbiguous:
		if !there {
			return []Finding{found(StateDiffers, p, "the proxy never sent it")}
		}
	case payout.StatePending, payout.StateClaimed, payout.StateRailSubmitted:
	}
	return nil
}

// amount compares an amount with the payout's.
func (c *comparison) amount(known map[string]payout.Payout, amount int64, id, what string) {
	if p, there := known[id]; there && p.Amount != amount {
		c.find(AmountDiffers, p, "its amount is %d, %s %d", p.Amount, what, amount)
	}
}

// ledger compares the ledger with itself and with the payouts, which were read before it.
func (c *comparison) ledger(l remote.Ledger, known map[string]payout.Payout) {
	for _, a := range l.Accounts {
		if a.Balance != a.Opening+a.Entries {
			c.find(LedgerUnbalanced, payout.Payout{Ref: payout.Ref{Account: a.ID}},
				"the balance is %d, opening %d and entries %d make %d", a.Balance, a.Opening, a.Entries, a.Opening+a.Entries)
		}
	}
	written := map[string]bool{}
	for _, g := range l.Groups {
		written[g.Payout] = true
		p, there := known[g.Payout]
		if !there {
			p.ID = g.Payout
			c.unknown[g.Payout] = append(c.unknown[g.Payout], "the ledger")
		} else if p.State != payout.StatePosted {
			c.unposted = append(c.unposted, g.Payout)
		}
		if g.Entries != 2 || g.Sum != 0 {
			c.find(LedgerUnbalanced, p, "it has %d entries that add up to %d", g.Entries, g.Sum)
		}
		if g.Entries == 2 {
			c.amount(known, g.Paid, g.Payout, "the ledger has paid")
		}
	}
	for _, p := range known {
		if p.State == payout.StatePosted && !written[p.ID] {
			c.find(LedgerUnbalanced, p, "it has no entries")
		}
	}
}

// rail compares the rail's own listing with what the proxy has sent.
func (c *comparison) rail(b books, known map[string]payout.Payout) {
	before, after := executed(b.before), executed(b.after)
	for id, transfers := range after {
		p, there := known[id]
		p.ID = id
		if !there {
			c.unknown[id] = append(c.unknown[id], "a transfer at the rail")
		}
		if len(transfers) > 1 {
			c.find(DuplicateAtRail, p, "the rail has executed it %d times", len(transfers))
		}
		for _, t := range transfers {
			c.amount(known, t.Amount, id, "the rail has executed")
		}
		if sent, there := c.records[id]; there && sent.Outcome == payout.Rejected {
			c.find(RailDiffers, p, "the rail has executed it, the proxy says that it was declined")
		}
	}
	for id := range before {
		_, sent := c.records[id]
		if p, there := known[id]; there && !sent {
			c.find(RailDiffers, p, "the rail has executed it, the proxy never sent it")
		}
	}
	for id, sent := range c.records {
		if sent.Outcome == payout.Acked && len(after[id]) == 0 {
			p := known[id]
			p.ID = id
			c.find(RailDiffers, p, "the proxy says that the rail has taken it, the rail has not executed it")
		}
	}
}
