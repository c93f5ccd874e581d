package payout

import (
	"context"
	"errors"
	"time"

	"github.com/fencelock/fencelock/core/lock"
)

// Limits bound an execution in time. Zero means the default.
type Limits struct {
	// Begin is how long an execution may try to get to the rail. Default 30s.
	Begin time.Duration
	// Settle is how long it tries to write down what the rail has done. Default 60s.
	Settle time.Duration
	// Try is the patience for one try of a call of the payment resource. Default 5s.
	Try time.Duration
	// Rail is the patience for one call of the rail's proxy, which waits for the rail. Default 15s.
	Rail time.Duration
	// Release is the patience for the release of the lock. Default 5s.
	Release time.Duration
	// PauseBase and PauseMost bound the pauses between tries, which double. Defaults 20ms and 1s.
	PauseBase, PauseMost time.Duration
}

func (l Limits) withDefaults() Limits {
	for _, d := range []struct {
		value    *time.Duration
		standard time.Duration
	}{
		{&l.Begin, 30 * time.Second},
		{&l.Settle, 60 * time.Second},
		{&l.Try, 5 * time.Second},
		{&l.Rail, 15 * time.Second},
		{&l.Release, 5 * time.Second},
		{&l.PauseBase, 20 * time.Millisecond},
		{&l.PauseMost, time.Second},
	} {
		if *d.value <= 0 {
			*d.value = d.standard
		}
	}
	return l
}

// Executor executes payouts. It is safe for concurrent use.
type Executor struct {
	locks    Locks
	payments Payments
	rail     Rail
	observer Observer
	limits   Limits
}

// New returns an Executor over the ports.
func New(locks Locks, payments Payments, rail Rail, observer Observer, limits Limits) *Executor {
	return &Executor{locks: locks, payments: payments, rail: rail, observer: observer, limits: limits.withDefaults()}
}

// Execute takes the payout as far as it gets under one grant of its account's lock. What p says besides its names is news of the past;
// it is read again. If ctx ends before the rail was called, the execution ends at its next step; after that it goes on for as long as
// [Limits.Settle] allows.
func (e *Executor) Execute(ctx context.Context, p Payout) Result {
	return e.execute(ctx, p, func(State) bool { return true })
}

// Resolve is Execute for a payout whose submission has no known outcome, and does nothing for others: it asks for evidence, and
// never submits.
func (e *Executor) Resolve(ctx context.Context, p Payout) Result {
	return e.execute(ctx, p, func(s State) bool { return s == StateRailAmbiguous })
}

func (e *Executor) execute(ctx context.Context, p Payout, wanted func(State) bool) Result {
	x := &execution{Executor: e, payout: p, began: time.Now()}
	held, err := e.locks.TryAcquire(ctx, p.Account)
	switch {
	case errors.Is(err, lock.ErrHeld):
		return Result{Outcome: Contended}
	case err != nil:
		return x.left(ctx, err)
	}
	x.lock, x.token = held, held.Token()
	outcome, err := x.underLock(ctx, wanted)
	x.release(ctx)
	if err != nil {
		return x.left(ctx, err)
	}
	return Result{Outcome: outcome, Token: x.token.Number}
}

// underLock runs until the payout is over or the execution cannot go on. Its context ends with the caller's and with the lock.
func (x *execution) underLock(ctx context.Context, wanted func(State) bool) (Outcome, error) {
	ctx, cancel := context.WithTimeout(ctx, x.limits.Begin)
	defer cancel()
	defer context.AfterFunc(x.lock.Context(), cancel)()
	return x.run(ctx, wanted)
}

// release ends the grant. If the service cannot be asked, the grant ends with one of the next heartbeats, or with the session.
func (x *execution) release(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), x.limits.Release)
	defer cancel()
	_ = x.lock.Release(ctx)
}

// left is the result of an execution that cannot go on.
func (x *execution) left(ctx context.Context, err error) Result {
	kind := PayoutLeft
	if errors.Is(err, lock.ErrFencedOut) {
		kind = FencedOut
	}
	x.tell(ctx, kind, err)
	return Result{Outcome: Left, Token: x.token.Number, Err: err}
}
