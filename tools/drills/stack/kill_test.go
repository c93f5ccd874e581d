package stack_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/fencelock/fencelock/core/lock"
	"github.com/fencelock/fencelock/tools/drills/gate"
	"github.com/fencelock/fencelock/tools/drills/judge"
	"github.com/fencelock/fencelock/tools/drills/stack"
)

const (
	// kills of executors, and payouts that are made before each.
	kills       = 100
	perKill     = 5
	killBacklog = 50 // accounts
	// longestLife of an executor after it was ready.
	longestLife = 200 * time.Millisecond
)

// TestKilledExecutorsLoseAndRepeatNothing kills executors wherever they happen to be. Some payouts go where the rail declines, and some
// where the request is lost: those can never be known to be paid, and so are never sent again.
func TestKilledExecutorsLoseAndRepeatNothing(t *testing.T) {
	t.Parallel()
	for _, backend := range backends() {
		t.Run(backend, func(t *testing.T) {
			t.Parallel()
			s := stack.Start(t, programs, stack.Options{Backend: backend})
			must(t, "set faults", s.SetFaults(t.Context(), stack.Faults{Latency: "20ms", LoseReply: 0.05}))
			must(t, "open accounts", s.Seed(t.Context(), "", killBacklog, 0))
			for kill := range kills {
				order(t, s, kill)
				e := s.StartExecutor(fmt.Sprintf("victim-%d", kill), 4)
				live(t.Context(), rand.N(longestLife))
				e.Kill()
			}
			s.StartExecutor("survivor", 8)
			s.StartExecutor("helper", 8)
			payouts := s.AwaitAll("have come to their end", func(p stack.Payout) bool {
				return p.State == ending(p.ID)
			}, quietly)
			if got := total(t, s, "rail_duplicate_attempted_total"); got != 0 {
				t.Errorf("rail_duplicate_attempted_total is %v", got)
			}
			evidence := verdict(t, s)
			for _, p := range payouts {
				want := 1
				if p.State == judge.Ambiguous {
					want = 0
				}
				if got := requests(evidence, p.ID); got != want {
					t.Errorf("payout %s, %s: %d requests at the rail; want %d", p.ID, p.State, got, want)
				}
			}
			if len(payouts) != kills*perKill {
				t.Errorf("%d payouts; want %d", len(payouts), kills*perKill)
			}
			taken, ambiguous := takeovers(evidence)
			t.Logf("%d payouts were taken over from a killed executor, %d were ambiguous for a while or for ever", taken, ambiguous)
			if taken == 0 {
				t.Error("no kill hit anything: nothing was shown")
			}
		})
	}
}

// order makes the payouts before a kill.
func order(t *testing.T, s *stack.Stack, kill int) {
	t.Helper()
	for i := range perKill {
		n := kill*perKill + i
		o := stack.Order{ID: fmt.Sprintf("p%d", n), Account: fmt.Sprintf("account-%d", n%killBacklog), Amount: int64(10 + n)}
		switch n % 50 {
		case 7:
			o.ID, o.Destination = "unknown-"+o.ID, stack.ToLoseRequest
		case 13:
			o.ID, o.Destination = "declined-"+o.ID, stack.ToDecline
		}
		must(t, "create payout", s.Create(t.Context(), o))
	}
}

// ending is where a payout of [order] must end.
func ending(id string) judge.State {
	switch {
	case strings.HasPrefix(id, "unknown-"):
		return judge.Ambiguous
	case strings.HasPrefix(id, "declined-"):
		return judge.Failed
	}
	return judge.Posted
}

// live lets an executor live for a while.
func live(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}

// takeovers counts payouts that more than one grant wrote, and those that were ambiguous at some time.
func takeovers(e judge.Evidence) (taken, ambiguous int) {
	tokens, unclear := map[string]map[lock.Token]bool{}, map[string]bool{}
	for _, event := range e.Events {
		if event.Token == 0 {
			continue
		}
		if tokens[event.Payout] == nil {
			tokens[event.Payout] = map[lock.Token]bool{}
		}
		tokens[event.Payout][event.Token] = true
		unclear[event.Payout] = unclear[event.Payout] || event.To == judge.Ambiguous
	}
	for payout, of := range tokens {
		if len(of) > 1 {
			taken++
		}
		if unclear[payout] {
			ambiguous++
		}
	}
	return taken, ambiguous
}

// point is a call at which an executor is killed.
type point struct {
	name   string
	method string
	to     judge.State
	rail   bool
}

func points() []point {
	return []point{
		{name: "claim", method: gate.Claim},
		{name: "begin", method: gate.Advance, to: judge.Submitted},
		{name: "submit", method: gate.Submit, rail: true},
		{name: "outcome", method: gate.Advance, to: judge.Acked},
		{name: "post", method: gate.Post},
	}
}

// The ways to be killed at a call.
const (
	// before: the call never left.
	before = "before"
	// during: it is on its way, and arrives when another executor has done the work.
	during = "during"
	// after: it was answered, and nobody heard it.
	after = "after"
)

// TestKillBeforeDuringAndAfterEachCall kills an executor at each of its calls: while the call of one payout has not left, that of another is
// on its way, and the answer to a third is.
func TestKillBeforeDuringAndAfterEachCall(t *testing.T) {
	t.Parallel()
	for _, backend := range backends() {
		t.Run(backend, func(t *testing.T) {
			t.Parallel()
			s := stack.Start(t, programs, stack.Options{Backend: backend})
			late := map[string]*gate.Hold{}
			for _, p := range points() {
				late[p.name] = killAt(t, s, p)
			}
			s.StartExecutor("survivor", 8)
			s.AwaitOver(quietly)
			for name, hold := range late {
				hold.Let()
				answer, err := hold.Wait(t.Context())
				must(t, "wait for the late "+name, err)
				if answer.Code() != "FENCED_OUT" {
					t.Errorf("the late %s was answered %s", name, answer.Code())
				}
			}
			if got := total(t, s, "rail_duplicate_attempted_total"); got != 0 {
				t.Errorf("rail_duplicate_attempted_total is %v", got)
			}
			if got := total(t, s, "lock_fenced_out_total"); got != float64(len(late)) {
				t.Errorf("lock_fenced_out_total is %v; want one for each late call", got)
			}
			evidence := verdict(t, s)
			for _, p := range evidence.Payouts {
				if n := requests(evidence, p.ID); p.State != judge.Posted || n != 1 {
					t.Errorf("payout %s is %s, with %d requests at the rail", p.ID, p.State, n)
				}
			}
		})
	}
}

// killAt kills an executor that has come to the call with three payouts, and returns the call that is still on its way.
func killAt(t *testing.T, s *stack.Stack, p point) *gate.Hold {
	t.Helper()
	holds := map[string]*gate.Hold{}
	for _, when := range []string{before, during, after} {
		id := p.name + ":" + when
		holds[when] = holdAt(s, p, when, id)
		must(t, "open account", s.OpenAccount(t.Context(), id, stack.Opening))
		must(t, "create payout", s.Create(t.Context(), stack.Order{ID: id, Account: id, Amount: 30}))
	}
	victim := s.StartExecutor("victim at "+p.name, 8)
	for when, hold := range holds {
		s.Eventually(p.name+" is held "+when, func() bool { return reached(hold) })
	}
	victim.Kill()
	holds[before].Drop()
	holds[after].Drop()
	return holds[during]
}

// holdAt keeps the call of the payout back.
func holdAt(s *stack.Stack, p point, when, payout string) *gate.Hold {
	match := func(c gate.Call) bool { return c.Payout == payout && c.Method == p.method && c.To == string(p.to) }
	at := s.ToPayment
	if p.rail {
		at = s.ToProxy
	}
	if when == after {
		return at.HoldAnswer(match)
	}
	return at.HoldRequest(match)
}

func reached(h *gate.Hold) bool {
	select {
	case <-h.Reached():
		return true
	default:
		return false
	}
}
