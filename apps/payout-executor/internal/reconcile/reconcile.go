package reconcile

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"time"

	"github.com/fencelock/fencelock/apps/payout-executor/internal/payout"
	"github.com/fencelock/fencelock/apps/payout-executor/internal/remote"
	"github.com/fencelock/fencelock/core/lock"
)

const (
	// Patience is how long a lock is asked for that somebody holds, unless told otherwise.
	Patience = 5 * time.Second
	// askEvery is the longest pause between two requests for it.
	askEvery = 100 * time.Millisecond
	// atOnce is how many payouts are looked at under their locks at a time.
	atOnce = 8
	// releaseTimeout bounds the release of a lock.
	releaseTimeout = 5 * time.Second
)

// Payments is what is read of the payment resource.
type Payments interface {
	List(ctx context.Context, states []payout.State, size int, token string) (found []payout.Payout, next string, err error)
	Get(ctx context.Context, id string) (payout.Picture, error)
	Ledger(ctx context.Context) (remote.Ledger, error)
}

// Rail is what is read of the proxy.
type Rail interface {
	List(ctx context.Context, size int, token string) (found []payout.Submission, next string, err error)
	Lookup(ctx context.Context, token payout.Token, ref payout.Ref) (s payout.Submission, there bool, err error)
}

// Reconciler compares.
type Reconciler struct {
	Payments Payments
	Rail     Rail
	Locks    payout.Locks
	// Resolve asks for evidence about an ambiguous payout, as [payout.Executor.Resolve] does.
	Resolve func(ctx context.Context, p payout.Payout) payout.Result
	// Log reads the rail's own listing; nil: it is not compared.
	Log func(ctx context.Context) ([]remote.Transfer, error)
	// Patience is how long a lock is asked for that somebody holds.
	Patience time.Duration
}

// Run compares. An error means that something could not be read, and says nothing about what it would have found.
func (r *Reconciler) Run(ctx context.Context) (Report, error) {
	b, err := r.read(ctx)
	if err != nil {
		return Report{}, err
	}
	c := compare(b)
	report := summary(b)
	report.Findings = append(report.Findings, c.findings...)
	if err := r.lookAgain(ctx, c, &report); err != nil {
		return Report{}, err
	}
	if err := r.doubts(ctx, c, &report); err != nil {
		return Report{}, err
	}
	report.sort()
	return report, nil
}

func summary(b books) Report {
	report := Report{
		Payouts: map[payout.State]int{}, Submissions: map[payout.SubmissionOutcome]int{}, Groups: len(b.ledger.Groups),
		Findings: []Finding{}, Resolved: []Resolution{}, InWork: []InWork{},
	}
	for _, p := range b.payouts {
		report.Payouts[p.State]++
	}
	for _, s := range b.submissions {
		report.Submissions[s.Outcome]++
	}
	if b.logged {
		n := 0
		for _, t := range b.after {
			if t.Executed {
				n++
			}
		}
		report.Transfers = &n
	}
	return report
}

// lookAgain reads payouts that may have changed, or come, since they were listed. No lock is needed: what is asked never changes back.
func (r *Reconciler) lookAgain(ctx context.Context, c comparison, report *Report) error {
	for _, id := range c.unposted {
		picture, err := r.Payments.Get(ctx, id)
		if err != nil {
			return fmt.Errorf("read payout: %w", err)
		}
		if p := picture.Payout; p.State != payout.StatePosted {
			report.Findings = append(report.Findings, found(LedgerUnbalanced, p, "it has entries, and is not POSTED"))
		}
	}
	for id, by := range c.unknown {
		_, err := r.Payments.Get(ctx, id)
		refused, ok := errors.AsType[*payout.RefusedError](err)
		switch {
		case ok && refused.Code == payout.NotFound:
			report.Findings = append(report.Findings, Finding{
				Class: UnknownPayout, Payout: id, Detail: "there is no such payout; it is named in " + strings.Join(by, ", "),
			})
		case err != nil:
			return fmt.Errorf("read payout: %w", err)
		}
	}
	return nil
}

// doubts looks at the payouts that somebody may be at: those of one account one after the other, as each needs its lock.
func (r *Reconciler) doubts(ctx context.Context, c comparison, report *Report) error {
	accounts := map[string][]payout.Payout{}
	for _, p := range c.doubts {
		accounts[p.Account] = append(accounts[p.Account], p)
	}
	var mu sync.Mutex
	var failed error
	places := make(chan struct{}, atOnce)
	var looking sync.WaitGroup
	for _, doubts := range accounts {
		places <- struct{}{}
		looking.Go(func() {
			defer func() { <-places }()
			for _, p := range doubts {
				sent, there := c.records[p.ID]
				v, err := r.doubt(ctx, p, sent, there)
				mu.Lock()
				failed = errors.Join(failed, err)
				v.into(report)
				mu.Unlock()
			}
		})
	}
	looking.Wait()
	return failed
}

// verdict is what a doubt came to; all may be empty.
type verdict struct {
	findings []Finding
	resolved []Resolution
	inWork   []InWork
}

func (v verdict) into(report *Report) {
	report.Findings = append(report.Findings, v.findings...)
	report.Resolved = append(report.Resolved, v.resolved...)
	report.InWork = append(report.InWork, v.inWork...)
}

// doubt decides about a payout that somebody may be at, or may have been at since it was listed.
func (r *Reconciler) doubt(ctx context.Context, p payout.Payout, sent record, there bool) (verdict, error) {
	held, err := r.acquire(ctx, p.Account)
	if errors.Is(err, lock.ErrHeld) {
		return verdict{inWork: []InWork{{p.ID, p.Account}}}, nil
	}
	if err != nil {
		return verdict{}, fmt.Errorf("acquire lock: %w", err)
	}
	v, ambiguous, err := r.underLock(ctx, held, p, sent, there)
	release, cancel := context.WithTimeout(context.WithoutCancel(ctx), releaseTimeout)
	defer cancel()
	_ = held.Release(release) // if it cannot be asked, it ends with the session
	if err != nil || !ambiguous {
		return v, err
	}
	return r.resolve(ctx, p), nil
}

// underLock reads the payout while nobody else can be at it.
func (r *Reconciler) underLock(ctx context.Context, held payout.Lock, p payout.Payout, sent record, there bool) (
	v verdict, ambiguous bool, err error,
) {
	picture, err := r.Payments.Get(ctx, p.ID)
	if err != nil {
		return v, false, fmt.Errorf("read payout: %w", err)
	}
	p = picture.Payout
	switch {
	case p.State == payout.StateRailAmbiguous:
		return v, true, nil
	case p.State.Terminal() && there && sent.Outcome != payout.Unknown:
		// What was written since is of no concern, but for money that has left.
		v.findings = contradictions(p, sent, there)
		return v, false, nil
	case p.State.Terminal():
		return v, false, nil
	}
	// What was listed may be older than what the state tells of.
	if there && sent.Outcome == payout.Unknown || !there && (p.State == payout.StateRailSubmitted || p.State == payout.StateRailAcked) {
		if sent.Submission, there, err = r.Rail.Lookup(ctx, held.Token(), p.Ref); err != nil {
			return v, false, fmt.Errorf("look up submission: %w", err)
		}
		if sent.Transfers > 1 {
			v.findings = append(v.findings, found(DuplicateAtRail, p, "the rail has executed it %d times", sent.Transfers))
		}
	}
	if p.State == payout.StateClaimed && !there {
		if v.findings, err = r.reserved(ctx, picture); err != nil || len(v.findings) > 0 {
			return v, false, err
		}
	}
	v.findings = append(v.findings, unattended(p, sent, there)...)
	return v, false, nil
}

// reserved is what to say of a payout that may not be sent while the rail may have taken its money for others of the account. Under
// the lock these stand still.
func (r *Reconciler) reserved(ctx context.Context, picture payout.Picture) ([]Finding, error) {
	p := picture.Payout
	open, err := pages(func(token string) ([]payout.Payout, string, error) {
		states := []payout.State{payout.StateRailSubmitted, payout.StateRailAmbiguous, payout.StateRailAcked}
		return r.Payments.List(ctx, states, pageSize, token)
	})
	if err != nil {
		return nil, fmt.Errorf("list payouts: %w", err)
	}
	var sum int64
	for _, other := range open {
		if other.Account == p.Account {
			sum += other.Amount
		}
	}
	if picture.Balance < p.Amount || picture.Balance-sum >= p.Amount {
		return nil, nil
	}
	return []Finding{found(FundsReserved, p,
		"of the balance of %d the rail may have taken %d for others; it waits until that is known", picture.Balance, sum)}, nil
}

// unattended is what to say of a payout that is not over, and that nobody is at.
func unattended(p payout.Payout, sent record, there bool) []Finding {
	switch {
	case there && sent.Outcome == payout.Acked:
		return []Finding{found(AckedNotPosted, p, "the rail has taken it as %q, and nobody is at it", sent.Reference)}
	case there && (p.State == payout.StatePending || p.State == payout.StateClaimed):
		return []Finding{found(StateDiffers, p, "the proxy has sent it")}
	case there && sent.Outcome == payout.Unknown:
		return []Finding{found(Ambiguous, p, "it was sent, and there is no evidence of what the rail did")}
	case there:
		return []Finding{found(Stuck, p, "the rail has declined it, and nobody is at it")}
	case p.State.Begun():
		return []Finding{found(Stuck, p, "somebody has begun it, and nobody is at it")}
	}
	return nil
}

// resolve asks for evidence about an ambiguous payout.
func (r *Reconciler) resolve(ctx context.Context, p payout.Payout) verdict {
	result := r.Resolve(ctx, p)
	p.State = payout.StateRailAmbiguous
	switch result.Outcome {
	case payout.Posted, payout.Failed:
		return verdict{resolved: []Resolution{{p.ID, p.Account, result.Outcome}}}
	case payout.Contended:
		return verdict{inWork: []InWork{{p.ID, p.Account}}}
	case payout.Over:
		return verdict{} // somebody else has just resolved it
	case payout.Left:
		return verdict{findings: []Finding{found(Ambiguous, p, "it could not be resolved: %v", result.Err)}}
	case payout.Unresolved, payout.Ambiguous, payout.Abandoned, payout.Reserved:
	}
	return verdict{findings: []Finding{found(Ambiguous, p, "there is no evidence of what the rail did")}}
}

// acquire asks for the lock of an account for a while.
func (r *Reconciler) acquire(ctx context.Context, account string) (payout.Lock, error) {
	deadline := time.Now().Add(r.Patience)
	for {
		held, err := r.Locks.TryAcquire(ctx, account)
		if !errors.Is(err, lock.ErrHeld) || time.Now().After(deadline) {
			return held, err
		}
		timer := time.NewTimer(rand.N(askEvery) + 1) //nolint:gosec // jitter is no secret
		select {
		case <-ctx.Done():
			timer.Stop()
			return nil, lock.Contention("the call was given up", false, context.Cause(ctx))
		case <-timer.C:
		}
	}
}
