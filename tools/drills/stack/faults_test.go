package stack_test

import (
	"fmt"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/fencelock/fencelock/tools/drills/gate"
	"github.com/fencelock/fencelock/tools/drills/judge"
	"github.com/fencelock/fencelock/tools/drills/stack"
)

// TestTheRailDeclinesAndLosesAnswers has a payout for each thing that can come of one.
func TestTheRailDeclinesAndLosesAnswers(t *testing.T) {
	t.Parallel()
	for _, backend := range backends() {
		t.Run(backend, func(t *testing.T) {
			t.Parallel()
			s := stack.Start(t, programs, stack.Options{Backend: backend})
			ends := map[string]struct {
				to       string
				state    judge.State
				requests int
			}{
				"paid":     {"", judge.Posted, 1},
				"declined": {stack.ToDecline, judge.Failed, 1},
				"reply":    {stack.ToLoseReply, judge.Posted, 1}, // the rail knows of it when it is asked
				"request":  {stack.ToLoseRequest, judge.Ambiguous, 0},
				"poor":     {"", judge.Abandoned, 0},
			}
			for id, end := range ends {
				must(t, "open account", s.OpenAccount(t.Context(), id, 100))
				amount := int64(100)
				if id == "poor" {
					amount = 101
				}
				must(t, "create payout", s.Create(t.Context(), stack.Order{ID: id, Account: id, Amount: amount, Destination: end.to}))
			}
			s.StartExecutor("one", 4)
			s.StartExecutor("two", 4)
			s.AwaitAll("are where they must be", func(p stack.Payout) bool { return p.State == ends[p.ID].state }, quietly)
			s.Eventually("what is not known is looked up again", func() bool { return lookups(s, "request") > 2 })
			evidence := verdict(t, s)
			for _, p := range evidence.Payouts {
				if want := ends[p.ID]; p.State != want.state || requests(evidence, p.ID) != want.requests {
					t.Errorf("payout %s is %s, with %d requests at the rail; want %s and %d",
						p.ID, p.State, requests(evidence, p.ID), want.state, want.requests)
				}
				submits := 0
				for _, c := range s.ToProxy.Calls() {
					if c.Method == gate.Submit && c.Payout == p.ID {
						submits++
					}
				}
				if submits > 1 {
					t.Errorf("payout %s was submitted %d times", p.ID, submits)
				}
			}
		})
	}
}

// TestMoneyOnItsWayIsNotSpentTwice has an account that can pay one of two payouts, and loses the rail's answer to the first.
func TestMoneyOnItsWayIsNotSpentTwice(t *testing.T) {
	t.Parallel()
	s := stack.Start(t, programs, stack.Options{Backend: stack.Etcd})
	must(t, "open account", s.OpenAccount(t.Context(), "a", 100))
	must(t, "create payout", s.Create(t.Context(), stack.Order{ID: "first", Account: "a", Amount: 100, Destination: stack.ToLoseReply}))
	must(t, "create payout", s.Create(t.Context(), stack.Order{ID: "second", Account: "a", Amount: 100}))
	s.StartExecutor("one", 1)
	end := map[string]judge.State{"first": judge.Posted, "second": judge.Abandoned}
	s.AwaitAll("are where they must be", func(p stack.Payout) bool { return p.State == end[p.ID] }, quietly)
	verdict(t, s)
}

func lookups(s *stack.Stack, payout string) int {
	n := 0
	for _, c := range s.ToProxy.Calls() {
		if c.Method == gate.Lookup && c.Payout == payout {
			n++
		}
	}
	return n
}

// TestExecutorsShareOneAccount has all of them want the same lock all the time.
func TestExecutorsShareOneAccount(t *testing.T) {
	t.Parallel()
	for _, backend := range backends() {
		t.Run(backend, func(t *testing.T) {
			t.Parallel()
			const payouts = 25
			s := stack.Start(t, programs, stack.Options{Backend: backend})
			must(t, "seed", s.Seed(t.Context(), "", 1, payouts))
			for i := range 3 {
				s.StartExecutor(fmt.Sprintf("executor-%d", i), 2)
			}
			s.AwaitOver(quietly)
			for _, metric := range []string{"rail_duplicate_attempted_total", "lock_fenced_out_total"} {
				if got := total(t, s, metric); got != 0 {
					t.Errorf("%s is %v", metric, got)
				}
			}
			evidence := verdict(t, s)
			if got := len(evidence.Transfers); got != payouts {
				t.Errorf("%d requests at the rail; want %d", got, payouts)
			}
		})
	}
}

// TestALockedRowDelaysOnlyItsAccount has somebody else's transaction write an account's fence and stay open.
func TestALockedRowDelaysOnlyItsAccount(t *testing.T) {
	t.Parallel()
	for _, backend := range backends() {
		t.Run(backend, func(t *testing.T) {
			t.Parallel()
			ctx := t.Context()
			const locked = "account-0"
			s := stack.Start(t, programs, stack.Options{Backend: backend})
			must(t, "seed", s.Seed(ctx, "", 10, 50))
			conn, err := pgx.Connect(ctx, s.PaymentURL)
			must(t, "connect", err)
			defer func() { _ = conn.Close(ctx) }()
			tx, err := conn.Begin(ctx)
			must(t, "begin", err)
			_, err = tx.Exec(ctx, "UPDATE payment.account SET fence = fence + 1 WHERE id = $1", locked)
			must(t, "write the fence", err)
			s.StartExecutor("one", 4)
			s.StartExecutor("two", 4)
			others := func(p stack.Payout) bool { return p.Account == locked || p.State.Terminal() }
			for _, p := range s.AwaitAll("of other accounts are over", others, quietly) {
				if p.Account == locked && p.State != judge.Pending {
					t.Errorf("payout %s is %s though the row of its account is locked", p.ID, p.State)
				}
			}
			must(t, "roll back", tx.Rollback(ctx))
			s.AwaitOver(quietly)
			evidence := verdict(t, s)
			if got := len(evidence.Transfers); got != 50 {
				t.Errorf("%d requests at the rail; want 50", got)
			}
		})
	}
}
