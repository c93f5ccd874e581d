package account_test

import (
	"context"
	"fmt"
	"slices"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/fencelock/fencelock/apps/payments/internal/account"
	"github.com/fencelock/fencelock/core/lock"
)

// resource is what is judged: the store, or one with a naive statement in place of one of its own.
type resource interface {
	Claim(ctx context.Context, ref account.Ref, token lock.Token) (account.View, error)
	Advance(ctx context.Context, ref account.Ref, token lock.Token, step account.Step) (account.Payout, error)
	Post(ctx context.Context, ref account.Ref, token lock.Token, balance int64) (account.View, error)
}

// paused plays two executors on the payouts p, q and r, one of which is paused again and again and comes back too late. That
// calls are refused is no concern here: only what is written is.
func paused(ctx context.Context, r resource) {
	const late, newer = 33, 34
	p, q := ref("p"), ref("q")
	acked := step(account.RailSubmitted, account.RailAcked)
	_, _ = r.Claim(ctx, p, late)
	_, _ = r.Advance(ctx, p, late, step(account.Claimed, account.RailSubmitted))
	_, _ = r.Advance(ctx, p, late, acked)
	_, _ = r.Claim(ctx, p, newer)
	_, _ = r.Post(ctx, p, late, 900) // paused before its post
	_, _ = r.Post(ctx, p, newer, 900)
	_, _ = r.Post(ctx, p, newer, 900) // the answer was lost
	_, _ = r.Claim(ctx, q, 35)
	_, _ = r.Claim(ctx, q, late) // paused before its claim
	_, _ = r.Claim(ctx, q, 36)
	_, _ = r.Advance(ctx, q, 36, step(account.Claimed, account.RailSubmitted))
	_, _ = r.Advance(ctx, q, 36, acked)
	_, _ = r.Advance(ctx, q, 36, step(account.Claimed, account.RailSubmitted)) // the network had kept it
	_, _ = r.Advance(ctx, q, 36, acked)
	_, _ = r.Post(ctx, q, 36, 850)
	_, _ = r.Advance(ctx, q, 36, step(account.RailSubmitted, account.Failed)) // and this too
	_, _ = r.Claim(ctx, ref("r"), late)
}

// naive is a resource that somebody might write who has not thought of all this.
type naive struct {
	*account.Store

	conn *pgx.Conn
	// These writes are naive.
	claim, advance, post bool
	// fence and from say what a naive write compares all the same.
	fence, from bool
}

func (n naive) Claim(ctx context.Context, r account.Ref, token lock.Token) (account.View, error) {
	if !n.claim {
		return n.Store.Claim(ctx, r, token)
	}
	return account.View{}, n.write(ctx, r, token, account.Pending, account.Claimed, `
		UPDATE payment.account SET fence = $1 WHERE id = $2`, token, r.Account)
}

func (n naive) Advance(ctx context.Context, r account.Ref, token lock.Token, s account.Step) (account.Payout, error) {
	if !n.advance {
		return n.Store.Advance(ctx, r, token, s)
	}
	return account.Payout{}, n.write(ctx, r, token, s.From, s.To, "")
}

func (n naive) Post(ctx context.Context, r account.Ref, token lock.Token, balance int64) (account.View, error) {
	if !n.post {
		return n.Store.Post(ctx, r, token, balance)
	}
	return account.View{}, n.write(ctx, r, token, account.RailAcked, account.Posted, `
		WITH e AS (INSERT INTO payment.ledger_entry (payout, account, amount, token)
			SELECT id, x.account, x.amount, $1 FROM payment.payout, LATERAL (VALUES (payout.account, -amount), ('rail', amount)) x(account, amount)
			WHERE id = $2)
		UPDATE payment.account SET balance = $3 WHERE id = $4`, token, r.Payout, balance, r.Account)
}

// write writes a state, and what else there is to write, with no more checks than n has left.
func (n naive) write(ctx context.Context, r account.Ref, token lock.Token, from, to account.State, also string, args ...any) error {
	return pgx.BeginFunc(ctx, n.conn, func(tx pgx.Tx) error {
		tag, err := tx.Exec(ctx, `
			WITH event AS (INSERT INTO payment.payout_event (payout, account, from_state, to_state, token, fence)
				SELECT p.id, a.id, p.state, $3, $4, a.fence FROM payment.payout p JOIN payment.account a ON a.id = p.account
				WHERE p.id = $1 AND (NOT $5 OR p.state = $2) AND (NOT $6 OR a.fence = $4) RETURNING payout)
			UPDATE payment.payout SET state = $3, token = $4, claim = $4 FROM event WHERE id = event.payout`,
			r.Payout, from, to, token, n.from, n.fence)
		if err != nil || tag.RowsAffected() == 0 || also == "" {
			return err
		}
		_, err = tx.Exec(ctx, also, args...)
		return err
	})
}

// TestInvariants judges what a resource has written, and that the judge sees what is wrong with naive ones.
func TestInvariants(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		naive naive
		found string
	}{
		"the store":                       {naive{}, ""},
		"a claim without a fence":         {naive{claim: true, from: true}, "INV-05"},
		"an advance without a from":       {naive{advance: true, fence: true}, "INV-08"},
		"a post without a fence":          {naive{post: true, from: true}, "INV-05"},
		"a post without a state":          {naive{post: true, fence: true}, "INV-03"},
		"a post without either":           {naive{post: true}, "INV-03"},
		"a claim without either":          {naive{claim: true}, "INV-08"},
		"writers that trust in the lock":  {naive{claim: true, advance: true, post: true}, "INV-01"},
		"writers that compare the states": {naive{claim: true, advance: true, post: true, from: true}, "INV-05"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := open(t, true)
			w.payout("r", "a", 10)
			c.naive.Store, c.naive.conn = w.Store, w.connect()
			paused(t.Context(), c.naive)
			found := w.judge()
			if c.found == "" && len(found) > 0 || c.found != "" && !slices.Contains(found, c.found) {
				t.Errorf("broken: %q, want %q", found, c.found)
			}
		})
	}
}

// judge lists the invariants that are broken.
func (w *world) judge() []string {
	w.t.Helper()
	var found []string
	blame := func(invariant string, broken bool) {
		if broken && !slices.Contains(found, invariant) {
			found = append(found, invariant)
		}
	}
	payouts, _, err := w.ListPayouts(w.t.Context(), nil, 1000, "")
	if err != nil {
		w.t.Fatal(err)
	}
	l, posted := w.ledger(), map[string]int64{}
	for _, p := range payouts {
		if p.State == account.Posted {
			posted[p.ID] = p.Amount
		}
	}
	for _, a := range l.Accounts {
		blame("INV-03", a.Balance != a.Opening+a.Entries)
	}
	for _, g := range l.Groups {
		blame("INV-03", g.Entries != 2 || g.Sum != 0 || g.Paid != posted[g.Payout])
	}
	blame("INV-03", len(l.Groups) != len(posted))
	highest := map[string]lock.Token{}
	for _, e := range w.events() {
		blame("INV-01", e.Token < highest[e.Payout])
		blame("INV-05", e.Token < e.Fence)
		blame("INV-08", e.From.Terminal() && e.From != "" || e.From != e.To && e.From != "" && !listed(e))
		highest[e.Payout] = max(highest[e.Payout], e.Token)
	}
	if len(found) == 0 && len(highest) == 0 {
		w.t.Error("there was nothing to judge")
	}
	return found
}

func listed(e account.Event) bool {
	return slices.ContainsFunc(account.Transitions(), func(s account.Transition) bool { return fmt.Sprint(s.From, s.To) == fmt.Sprint(e.From, e.To) })
}
