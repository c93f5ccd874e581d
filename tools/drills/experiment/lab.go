package experiment

import (
	"context"
	"fmt"
	"time"

	"github.com/fencelock/fencelock/core/lock"
	"github.com/fencelock/fencelock/tools/drills"
	"github.com/fencelock/fencelock/tools/drills/gate"
	"github.com/fencelock/fencelock/tools/drills/judge"
	"github.com/fencelock/fencelock/tools/drills/stack"
)

// opening and amount are the money of a run, in minor units.
const (
	opening = 1000
	amount  = 30
)

// patience bounds each step of a run: far beyond what a busy machine needs.
const patience = 90 * time.Second

// Lab is a stack in one position, for one run after another.
type Lab struct {
	t        drills.T
	position Position
	stack    *stack.Stack
}

// NewLab brings the system up over the backend. It ends with the test.
func NewLab(t drills.T, programs *drills.Programs, backend string, p Position) *Lab {
	t.Helper()
	return &Lab{t: t, position: p, stack: stack.Start(t, programs, stack.Options{
		Backend: backend, PaymentUnfenced: !p.Payment, RailUnfenced: !p.Rail,
	})}
}

// subject is one payout of a run: the run as it is seen so far, and the call that is held.
type subject struct {
	Run

	account, payout string
	hold            *gate.Hold
}

// Run makes one run and returns its two payouts, each as far as it came.
func (l *Lab) Run(number int) []Run {
	l.t.Helper()
	ctx := l.t.Context()
	subjects := []*subject{l.subject(number, AtRail), l.subject(number, AtLedger)}
	before, err := l.refused(ctx)
	if err == nil {
		err = l.act(ctx, number, subjects)
	}
	for _, s := range subjects {
		s.hold.Drop()
		if err == nil {
			err = l.observe(ctx, s)
		}
	}
	after, counting := l.refused(ctx)
	var runs []Run
	for _, s := range subjects {
		if err == nil {
			err = counting
		}
		if err != nil {
			s.Trouble = err.Error()
		}
		s.Counted = counted(s.Position, s.Site, before, after)
		runs = append(runs, s.Run)
	}
	return runs
}

// subject names an account and a payout for the site, and has its call held.
func (l *Lab) subject(number int, site Site) *subject {
	s := &subject{
		Run:     Run{Position: l.position, Site: site, Number: number},
		account: fmt.Sprintf("run-%d:%s", number, site), payout: fmt.Sprintf("run-%d:%s", number, site),
	}
	if site == AtRail {
		s.hold = l.stack.ToProxy.HoldRequest(func(c gate.Call) bool { return c.Method == gate.Submit && c.Payout == s.payout })
	} else {
		s.hold = l.stack.ToPayment.HoldRequest(func(c gate.Call) bool { return c.Method == gate.Post && c.Payout == s.payout })
	}
	return s
}

// act is the play: A is stopped in mid-flight, B does A's work, A wakes up.
func (l *Lab) act(ctx context.Context, number int, subjects []*subject) error {
	for _, s := range subjects {
		if err := l.stack.OpenAccount(ctx, s.account, opening); err != nil {
			return err
		}
		if err := l.stack.Create(ctx, stack.Order{ID: s.payout, Account: s.account, Amount: amount}); err != nil {
			return err
		}
	}
	a := l.stack.StartExecutor(fmt.Sprintf("A-%d", number), len(subjects))
	defer a.Kill()
	if !l.held(ctx, subjects) {
		return nil
	}
	a.Freeze()
	b := l.stack.StartExecutor(fmt.Sprintf("B-%d", number), len(subjects))
	defer b.Kill()
	if err := l.finished(ctx, subjects); err != nil {
		return err
	}
	if err := b.Stop(); err != nil {
		return err
	}
	if err := l.dead(ctx, subjects); err != nil {
		return err
	}
	a.Thaw()
	l.delivered(ctx, subjects)
	err := a.Stop()
	for _, s := range subjects {
		s.Ended = err == nil
		s.Fenced = refuser(a, s.payout)
	}
	return nil
}

// held waits until both calls are kept.
func (l *Lab) held(ctx context.Context, subjects []*subject) bool {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	all := true
	for _, s := range subjects {
		select {
		case <-s.hold.Reached():
			s.Held = true
		case <-ctx.Done():
			all = false
		}
	}
	return all
}

// finished waits until both payouts are over. While A is frozen, only B can have done that.
func (l *Lab) finished(ctx context.Context, subjects []*subject) error {
	limit := time.NewTimer(patience)
	defer limit.Stop()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		all := true
		for _, s := range subjects {
			p, err := l.stack.Payout(ctx, s.payout)
			if err != nil {
				return err
			}
			s.Finished = p.State == judge.Posted
			all = all && s.Finished
		}
		select {
		case <-limit.C:
			return nil
		case <-ctx.Done():
			return fmt.Errorf("wait for B: %w", context.Cause(ctx))
		case <-tick.C:
		}
		if all {
			return nil
		}
	}
}

// dead looks into the lock server's log: was the lock that A still believes in granted to somebody else?
func (l *Lab) dead(ctx context.Context, subjects []*subject) error {
	evidence, err := l.stack.Evidence(ctx)
	if err != nil {
		return err
	}
	for _, s := range subjects {
		token, err := s.hold.Call().Number()
		if err != nil {
			return err
		}
		s.Dead = deposed(evidence, judge.KeyOf(s.account), token)
	}
	return nil
}

// deposed reports whether a token's grant ended without a release, and a higher one came after it.
func deposed(e judge.Evidence, key string, token lock.Token) bool {
	later := false
	for _, g := range e.Grants {
		later = later || g.Key == key && g.Token > token
	}
	for _, r := range e.Releases {
		if r.Key == key && r.Token == token {
			return false
		}
	}
	return later
}

// delivered lets both calls go and waits for what the services say.
func (l *Lab) delivered(ctx context.Context, subjects []*subject) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for _, s := range subjects {
		s.hold.Let()
	}
	for _, s := range subjects {
		answer, err := s.hold.Wait(ctx)
		s.Delivered, s.Answer = err == nil, answer.Code()
	}
}

// refuser is the resource that refused the payout to an executor, as that says in its log; empty if none did.
func refuser(x *stack.Executor, payout string) string {
	for _, line := range stack.Lines(x.Output()) {
		if line.Event == "fenced_out" && line.Payout == payout {
			return line.Resource
		}
	}
	return ""
}

// observe looks at what has become of the payout at the rail and in the ledger.
func (l *Lab) observe(ctx context.Context, s *subject) error {
	transfers, err := l.stack.Transfers(ctx)
	if err != nil {
		return err
	}
	for _, t := range transfers {
		if t.Payout == s.payout {
			s.Requests++
		}
	}
	accounts, groups, err := l.stack.Ledger(ctx)
	if err != nil {
		return err
	}
	for _, g := range groups {
		if g.Payout == s.payout {
			s.Balanced = g.Entries == 2 && g.Sum == 0 && g.Paid == amount
		}
	}
	for _, a := range accounts {
		if a.ID == s.account {
			s.Balanced = s.Balanced && a.Balance == a.Opening+a.Entries
		}
	}
	return nil
}

// refused reads lock_fenced_out_total by resource.
func (l *Lab) refused(ctx context.Context) (map[string]float64, error) {
	scrapes, err := l.stack.Scrape(ctx)
	if err != nil {
		return nil, err
	}
	counts := map[string]float64{}
	for _, resource := range []string{byAccount, byLedger, byRail} {
		for _, s := range scrapes {
			counts[resource] += s[fmt.Sprintf("lock_fenced_out_total{resource=%q}", resource)]
		}
	}
	return counts, nil
}

// counted compares how the counters rose during a run with who must have refused in it. One refusal may be counted more than
// once: a call whose answer does not come is sent again.
func counted(p Position, site Site, before, after map[string]float64) bool {
	must := map[string]bool{}
	for _, s := range Sites() {
		must[Expect(p, s).Fenced] = true
	}
	for _, resource := range []string{byAccount, byLedger, byRail} {
		rise := after[resource] - before[resource]
		if rise > 0 && !must[resource] || rise == 0 && resource == Expect(p, site).Fenced {
			return false
		}
	}
	return true
}

// Judge says what has become of the invariants in this position, and stops the system.
func (l *Lab) Judge() ([]judge.Finding, error) {
	evidence, err := l.stack.Evidence(l.t.Context())
	if err != nil {
		return nil, err
	}
	return judge.Judge(evidence), l.stack.Stop()
}
