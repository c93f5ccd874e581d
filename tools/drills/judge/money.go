package judge

// oneTransfer is INV-02.
func oneTransfer(e Evidence) Finding {
	f := Finding{Invariant: "INV-02", Claim: "at most one transfer per payout", Things: "requests at the rail"}
	amounts := map[string]int64{}
	for _, p := range e.Payouts {
		amounts[p.ID] = p.Amount
	}
	requests := map[string]int{}
	for _, t := range e.Transfers {
		f.Checked++
		requests[t.Payout]++
		if n := requests[t.Payout]; n > 1 {
			f.violatef("payout %s: request %d at the rail", t.Payout, n)
		}
		if amount, known := amounts[t.Payout]; !known || amount != t.Amount {
			f.violatef("payout %s of %d: the rail was asked for %d", t.Payout, amount, t.Amount)
		}
	}
	return f
}

// money is what ledger and rail have of one payout.
type money struct {
	// entries are how many the ledger has, sum what they add up to, and paid what the account of the rail got.
	entries   int
	sum, paid int64
	// taken is what the rail took.
	taken int64
}

// ledgerBalances is INV-03. Money that the rail took and the ledger does not show yet is no fault while its payout is
// under way, unless the account never had it.
func ledgerBalances(e Evidence) Finding {
	f := Finding{Invariant: "INV-03", Claim: "the ledger balances", Things: "payouts and accounts"}
	payouts := map[string]money{}
	for _, g := range e.Groups {
		m := payouts[g.Payout]
		m.entries += g.Entries
		m.sum += g.Sum
		m.paid += g.Paid
		payouts[g.Payout] = m
	}
	for _, t := range e.Transfers {
		if t.Taken {
			m := payouts[t.Payout]
			m.taken += t.Amount
			payouts[t.Payout] = m
		}
	}
	taken := map[string]int64{}
	for _, p := range e.Payouts {
		f.Checked++
		taken[p.Account] += payouts[p.ID].taken
		f.judgePayout(p, payouts[p.ID])
		delete(payouts, p.ID)
	}
	for payout, m := range payouts {
		f.violatef("payout %s, of which nothing is known, has %d entries, and the rail took %d", payout, m.entries, m.taken)
	}
	for _, a := range e.Accounts {
		f.Checked++
		if a.Balance != a.Opening+a.Entries {
			f.violatef("account %s: balance %d, but opening %d and entries %d", a.ID, a.Balance, a.Opening, a.Entries)
		}
		if taken[a.ID] > a.Opening {
			f.violatef("account %s: the rail took %d of %d", a.ID, taken[a.ID], a.Opening)
		}
	}
	return f
}

// judgePayout compares what ledger and rail have of a payout with its state.
func (f *Finding) judgePayout(p Payout, m money) {
	want := money{}
	switch {
	case p.State == Posted:
		want = money{entries: 2, paid: p.Amount, taken: p.Amount}
	case p.State.sent():
		want.taken = m.taken
	}
	if m != want {
		f.violatef("payout %s of %d is %s: %d entries, sum %d, the rail got %d and took %d",
			p.ID, p.Amount, p.State, m.entries, m.sum, m.paid, m.taken)
	}
}
