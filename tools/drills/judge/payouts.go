package judge

import (
	"slices"

	"github.com/fencelock/fencelock/core/lock"
)

// oneMutator is INV-01.
func oneMutator(e Evidence) Finding {
	f := Finding{Invariant: "INV-01", Claim: "one mutator per payout at a time", Things: "writes of payouts"}
	highest := map[string]lock.Token{}
	for _, event := range e.Events {
		if event.Token == 0 {
			continue
		}
		f.Checked++
		if seen := highest[event.Payout]; event.Token < seen {
			f.violatef("payout %s: %s written under token %d, after a write under %d", event.Payout, event.To, event.Token, seen)
		}
		highest[event.Payout] = max(highest[event.Payout], event.Token)
	}
	return f
}

// steps are the transitions that may happen.
func steps() map[State][]State {
	return map[State][]State{
		"":        {Pending},
		Pending:   {Claimed},
		Claimed:   {Submitted, Abandoned},
		Submitted: {Acked, Failed, Ambiguous},
		Ambiguous: {Acked, Failed},
		Acked:     {Posted},
	}
}

// terminalStays is INV-08.
func terminalStays(e Evidence) Finding {
	f := Finding{Invariant: "INV-08", Claim: "terminal states are terminal", Things: "payouts"}
	listed := steps()
	now := map[string]State{}
	for _, event := range e.Events {
		before, known := now[event.Payout]
		if !known && event.From != "" {
			before = Pending
		}
		now[event.Payout] = event.To
		switch {
		case before.Terminal():
			f.violatef("payout %s: %s written after %s", event.Payout, event.To, before)
		case before != event.From:
			f.violatef("payout %s: a write from %s, but it stood at %s", event.Payout, event.From, before)
		case event.From != event.To && !slices.Contains(listed[event.From], event.To):
			f.violatef("payout %s: no step leads from %q to %s", event.Payout, event.From, event.To)
		}
	}
	for _, p := range e.Payouts {
		f.Checked++
		last, known := now[p.ID]
		if !known {
			last = Pending
		}
		if p.State != last {
			f.violatef("payout %s is %s, its history ends in %s", p.ID, p.State, last)
		}
	}
	return f
}
