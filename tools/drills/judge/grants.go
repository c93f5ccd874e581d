package judge

import "time"

// holding is a grant with what is certain about its time: it was held from begun to used if that is not zero.
type holding struct {
	Grant

	used time.Time
}

// grantsExclude is INV-06. A line comes after what it tells of, however long after, so the end of one grant may be
// told after the begin of the next. Certain is: a grant whose release succeeded lived for as long as its holder
// used it, and one of a higher token came after it.
func grantsExclude(e Evidence) Finding {
	f := Finding{Invariant: "INV-06", Claim: "grants exclude each other", Things: "grants that were used and released"}
	keys := map[string][]holding{}
	for _, h := range holdings(e) {
		if !h.used.IsZero() {
			f.Checked++
		}
		for _, other := range keys[h.Key] {
			switch {
			case h.Token == other.Token:
				f.violatef("key %s: the sessions %s and %s both have token %d", h.Key, other.Session, h.Session, h.Token)
			case overlap(h, other) || overlap(other, h):
				f.violatef("key %s: tokens %d and %d were held at once", h.Key, other.Token, h.Token)
			}
		}
		keys[h.Key] = append(keys[h.Key], h)
	}
	return f
}

// overlap reports whether the later grant certainly began while the earlier one was held.
func overlap(earlier, later holding) bool {
	if !later.At.Before(earlier.used) {
		return false
	}
	// Of a lower token, the line may be an old one that was late: it must have been held then, too.
	return later.Token > earlier.Token || later.used.After(earlier.At)
}

// holdings joins grants, releases and uses. A grant that was told twice, because its answer was asked for again, is one.
func holdings(e Evidence) []holding {
	type owned struct {
		named
		session string
	}
	released := map[owned]bool{}
	for _, r := range e.Releases {
		released[owned{named{r.Key, r.Token}, r.Session}] = true
	}
	used := map[named]time.Time{}
	for _, u := range e.Uses {
		if id := (named{u.Key, u.Token}); u.At.After(used[id]) {
			used[id] = u.At
		}
	}
	seen := map[owned]bool{}
	var all []holding
	for _, g := range e.Grants {
		id := owned{named{g.Key, g.Token}, g.Session}
		if seen[id] {
			continue
		}
		seen[id] = true
		h := holding{Grant: g}
		if released[id] {
			h.used = used[id.named]
		}
		all = append(all, h)
	}
	return all
}

// nothingUngranted is INV-07.
func nothingUngranted(e Evidence) Finding {
	f := Finding{Invariant: "INV-07", Claim: "no side effect without a grant", Things: "writes, submissions, transfers"}
	granted := map[named]bool{}
	for _, g := range e.Grants {
		granted[named{g.Key, g.Token}] = true
	}
	for _, event := range e.Events {
		if event.From == "" {
			continue // the payout was asked for
		}
		f.Checked++
		if !granted[named{KeyOf(event.Account), event.Token}] {
			f.violatef("payout %s: %s written under token %d, which nobody was granted for account %s",
				event.Payout, event.To, event.Token, event.Account)
		}
	}
	submitted := map[string]int{}
	for _, s := range e.Submissions {
		f.Checked++
		submitted[s.Payout]++
		if !granted[named{KeyOf(s.Account), s.Token}] {
			f.violatef("payout %s: submitted under token %d, which nobody was granted for account %s", s.Payout, s.Token, s.Account)
		}
	}
	for _, t := range e.Transfers {
		f.Checked++
		if submitted[t.Payout]--; submitted[t.Payout] < 0 {
			f.violatef("payout %s: the rail has a request that belongs to no submission", t.Payout)
		}
	}
	return f
}
