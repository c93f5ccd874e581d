package judge

import "github.com/fencelock/fencelock/core/lock"

// named is a token of a key. Tokens of different keys may be equal.
type named struct {
	key   string
	token lock.Token
}

// tokensRise is INV-04.
func tokensRise(e Evidence) Finding {
	f := Finding{Invariant: "INV-04", Claim: "tokens never repeat or go back", Things: "grants"}
	sessions := map[named]string{}
	type line struct{ server, key string }
	last := map[line]lock.Token{}
	for _, g := range e.Grants {
		f.Checked++
		id, where := named{g.Key, g.Token}, line{g.Server, g.Key}
		if other, seen := sessions[id]; seen && other != g.Session {
			f.violatef("key %s: token %d granted to the sessions %s and %s", g.Key, g.Token, other, g.Session)
		}
		sessions[id] = g.Session
		if g.Token < last[where] {
			f.violatef("key %s: token %d granted after %d", g.Key, g.Token, last[where])
		}
		last[where] = max(last[where], g.Token)
	}
	payouts := map[named]string{}
	for _, event := range e.Events {
		if event.Token == 0 {
			continue
		}
		id := named{event.Account, event.Token}
		if other, seen := payouts[id]; seen && other != event.Payout {
			f.violatef("account %s: the payouts %s and %s written under token %d", event.Account, other, event.Payout, event.Token)
		}
		payouts[id] = event.Payout
	}
	return f
}

// nothingBelowFence is INV-05. It trusts no fence but what can be seen: a fence is as high as the highest token
// written before, also where the resource was told not to keep one.
func nothingBelowFence(e Evidence) Finding {
	f := Finding{Invariant: "INV-05", Claim: "no write below the fence", Things: "writes and submissions"}
	fences := map[string]lock.Token{}
	for _, event := range e.Events {
		if event.Token == 0 {
			continue
		}
		f.Checked++
		highest := fences[event.Account]
		if event.Token < max(highest, event.Fence) {
			f.violatef("account %s, payout %s: %s written under token %d, the fence was %d",
				event.Account, event.Payout, event.To, event.Token, max(highest, event.Fence))
		}
		if event.Fence < highest {
			f.violatef("account %s, payout %s: the fence was %d, after a write under token %d", event.Account, event.Payout, event.Fence, highest)
		}
		fences[event.Account] = max(highest, event.Fence, event.Token)
	}
	marks := map[string]lock.Token{}
	for _, s := range e.Submissions {
		f.Checked++
		if s.Token < marks[s.Account] {
			f.violatef("account %s, payout %s: submitted under token %d, after one under %d", s.Account, s.Payout, s.Token, marks[s.Account])
		}
		marks[s.Account] = max(marks[s.Account], s.Token)
	}
	return f
}
