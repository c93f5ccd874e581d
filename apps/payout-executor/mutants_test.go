package main

import (
	"context"
	"errors"
	"testing"

	"github.com/fencelock/fencelock/apps/payout-executor/internal/model"
	"github.com/fencelock/fencelock/apps/payout-executor/internal/payout"
	"github.com/fencelock/fencelock/core/lock"
)

// mutant is a planted bug: a way in which an executor could be wrong.
type mutant struct {
	name  string
	plant func(p ports) ports
	// trial returns what is wrong with executors that work with such ports; nothing if they are sound.
	trial func(t *testing.T, plant func(p ports) ports) []string
}

func mutants() []mutant {
	return []mutant{
		{"it submits again where the outcome is unknown", func(p ports) ports {
			p.rail = resubmitting{p.rail}
			return p
		}, lostSubmission},
		{"it does not ask whether the lock is still held", func(p ports) ports {
			p.locks = mutatedLocks{p.locks, func(l payout.Lock) payout.Lock { return trusting{l} }}
			return p
		}, lostLock},
		{"it claims without reading again", func(p ports) ports {
			p.payments = believing{p.payments}
			return p
		}, oldList},
		{"it releases before the work has ended", func(p ports) ports {
			p.locks = mutatedLocks{p.locks, func(l payout.Lock) payout.Lock {
				_ = l.Release(context.Background())
				return trusting{l}
			}}
			return p
		}, meeting},
		{"it ignores that it is fenced out", func(p ports) ports {
			p.payments = shameless{p.payments}
			return p
		}, staleHolder},
	}
}

// TestPlantedBugsAreCaught: each trial passes sound executors, and fails those with the bug.
func TestPlantedBugsAreCaught(t *testing.T) {
	t.Parallel()
	for _, m := range mutants() {
		t.Run(m.name, func(t *testing.T) {
			t.Parallel()
			if faults := m.trial(t, func(p ports) ports { return p }); len(faults) > 0 {
				t.Errorf("sound executors are blamed: %v", faults)
			}
			faults := m.trial(t, m.plant)
			if len(faults) == 0 {
				t.Error("it was not caught")
			}
			t.Logf("caught: %v", faults)
		})
	}
}

// lostSubmission loses the answer of a submission, before a proxy that trusts its callers.
func lostSubmission(t *testing.T, plant func(p ports) ports) []string {
	t.Helper()
	s := newStage(t)
	s.Unfence()
	s.Weather(func(c model.Call) model.Passage { return model.Passage{AnswerLost: c.Method == "Submit" && c.N == 1} })
	e, _ := plant(s.ports(t)).executor()
	e.Execute(t.Context(), the())
	return s.faults()
}

// lostLock takes the lock away at each boundary.
func lostLock(t *testing.T, plant func(p ports) ports) (faults []string) {
	t.Helper()
	for n := 0; ; n++ {
		s := newStage(t)
		found, reached := loseAt(t, s, plant, n)
		faults = append(faults, found...)
		if !reached {
			return faults
		}
	}
}

// oldList lets an executor at a payout that it has listed as PENDING, and that another one has submitted since. The services trust
// their callers.
func oldList(t *testing.T, plant func(p ports) ports) []string {
	t.Helper()
	s := newStage(t)
	s.Unfence()
	s.Put(thePayout, wire(payout.StateRailSubmitted), 5, "")
	s.Send(thePayout, 5, acked, true)
	e, _ := plant(s.ports(t)).executor()
	e.Execute(t.Context(), the())
	return s.faults()
}

// meeting lets a second executor at the payout while the first one is about to submit it, before services that trust their callers.
func meeting(t *testing.T, plant func(p ports) ports) []string {
	t.Helper()
	s := newStage(t)
	s.Unfence()
	second, _ := plant(s.ports(t)).executor()
	steps := &stepper{}
	steps.on = func(_ int, name string) error {
		if name == "before submit" {
			second.Execute(t.Context(), the())
		}
		return nil
	}
	first, _ := plant(s.ports(t)).stepped(steps).executor()
	first.Execute(t.Context(), the())
	return s.faults()
}

// staleHolder stops an executor before its claim, lets another one finish, and wakes it up.
func staleHolder(t *testing.T, plant func(p ports) ports) []string {
	t.Helper()
	s := newStage(t)
	steps := &stepper{}
	steps.on = func(_ int, name string) error {
		if name == "before claim" {
			s.revoke(t, theAccount)
			s.recover(t)
		}
		return nil
	}
	p := s.ports(t).stepped(steps)
	// It does not know yet that it has lost the lock: that is what a fence is for.
	p.locks = mutatedLocks{p.locks, func(l payout.Lock) payout.Lock { return trusting{l} }}
	e, _ := plant(p).executor()
	e.Execute(t.Context(), the())
	return s.faults()
}

// resubmitting is a rail that is asked again.
type resubmitting struct{ payout.Rail }

func (r resubmitting) Submit(ctx context.Context, token payout.Token, p payout.Payout) (payout.Submission, error) {
	sent, err := r.Rail.Submit(ctx, token, p)
	if lock.IsRetryable(err) {
		return r.Rail.Submit(ctx, token, p)
	}
	return sent, err
}

// mutatedLocks gives other locks.
type mutatedLocks struct {
	payout.Locks
	change func(payout.Lock) payout.Lock
}

func (l mutatedLocks) TryAcquire(ctx context.Context, account string) (payout.Lock, error) {
	got, err := l.Locks.TryAcquire(ctx, account)
	if err != nil {
		return nil, err
	}
	return l.change(got), nil
}

// trusting is a lock that is never asked.
type trusting struct{ payout.Lock }

func (trusting) CheckStillHeld() error    { return nil }
func (trusting) Context() context.Context { return context.Background() }

// believing is a payment resource whose answers are not looked at: what was listed counts.
type believing struct{ payout.Payments }

func (b believing) Get(context.Context, string) (payout.Picture, error) {
	return payout.Picture{Payout: the()}, nil
}

func (b believing) Claim(ctx context.Context, token payout.Token, ref payout.Ref) (payout.Picture, error) {
	picture, err := b.Payments.Claim(ctx, token, ref)
	picture.Payout = the()
	picture.Payout.State = payout.StateClaimed
	return picture, err
}

// shameless is a payment resource whose refusals are not looked at.
type shameless struct{ payout.Payments }

func (s shameless) Claim(ctx context.Context, token payout.Token, ref payout.Ref) (payout.Picture, error) {
	picture, err := s.Payments.Claim(ctx, token, ref)
	if errors.Is(err, lock.ErrFencedOut) {
		picture, err = payout.Picture{Payout: the(), Balance: theBalance}, nil
		picture.Payout.State = payout.StateClaimed
	}
	return picture, err
}

func (s shameless) Advance(ctx context.Context, token payout.Token, step payout.Step) (payout.Payout, error) {
	p, err := s.Payments.Advance(ctx, token, step)
	if errors.Is(err, lock.ErrFencedOut) {
		p, err = the(), nil
		p.State = step.To
	}
	return p, err
}
