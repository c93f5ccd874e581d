package payout

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/fencelock/fencelock/core/lock"
)

// maxReason bounds the reasons that are written, in characters.
const maxReason = 200

// answerLost is the reason of a payout whose fate is not known.
const answerLost = "the rail was called and its answer is not known"

// execution is one payout under one grant.
type execution struct {
	*Executor

	lock  Lock
	token Token
	// payout is as the payment resource showed it last.
	payout Payout
	// balance of the account, as the claim showed it: nobody else changes it before this grant is fenced out.
	balance int64
	// presented is the resource that the token was presented to last.
	presented Resource
	began     time.Time
}

// run goes through the order that the package's comment gives.
func (x *execution) run(ctx context.Context, wanted func(State) bool) (Outcome, error) {
	if err := x.read(ctx); err != nil {
		return "", err
	}
	if x.payout.State.Terminal() || !wanted(x.payout.State) {
		return Over, nil
	}
	if err := x.claim(ctx); err != nil {
		return "", err
	}
	var sent Submission
	var err error
	switch x.payout.State {
	case StateClaimed:
		if x.balance < x.payout.Amount {
			return Abandoned, x.abandon(ctx)
		}
		if err = x.begin(ctx); reserved(err) {
			x.tell(ctx, PayoutReserved, nil)
			return Reserved, nil
		}
		if err == nil {
			sent, err = x.submit(ctx)
		}
	case StateRailSubmitted, StateRailAmbiguous:
		sent, err = x.evidence(ctx)
	case StateRailAcked:
	case StatePosted, StateFailed, StateAbandoned:
		return Over, nil
	case StatePending:
		err = errors.New("claim payout: it is still PENDING")
	default:
		err = fmt.Errorf("claim payout: its state %q is unknown", x.payout.State)
	}
	if err != nil {
		return "", err
	}
	return x.settle(ctx, sent)
}

// read looks at the payout under the lock: what the caller knows of it may be old.
func (x *execution) read(ctx context.Context) error {
	return x.repeat(ctx, x.limits.Try, func(ctx context.Context) error {
		picture, err := x.payments.Get(ctx, x.payout.ID)
		if err == nil {
			x.payout = picture.Payout
		}
		return wrap("read payout", err)
	})
}

// claim raises the account's fence. From here on no older holder writes, so what it returns stays true.
func (x *execution) claim(ctx context.Context) error {
	err := x.begins(ctx, func(ctx context.Context) error {
		x.presented = ResourceAccount
		picture, err := x.payments.Claim(ctx, x.token, x.payout.Ref)
		if err == nil {
			x.payout, x.balance = picture.Payout, picture.Balance
		}
		return wrap("claim payout", err)
	})
	if err == nil {
		x.tell(ctx, PayoutClaimed, nil)
	}
	return err
}

// abandon gives up a payout that its account cannot pay. Nothing was sent.
func (x *execution) abandon(ctx context.Context) error {
	err := x.begins(ctx, x.move(Step{
		Ref: x.payout.Ref, From: StateClaimed, To: StateAbandoned, Reason: "the balance is below the amount",
	}))
	if err == nil {
		x.tell(ctx, PayoutAbandoned, nil)
	}
	return err
}

// begin writes down that the rail may be called.
func (x *execution) begin(ctx context.Context) error {
	return x.begins(ctx, x.move(Step{Ref: x.payout.Ref, From: StateClaimed, To: StateRailSubmitted}))
}

// reserved reports whether the payment resource has refused to let a payout be sent, for as long as the fate of others is open.
func reserved(err error) bool {
	refused, ok := errors.AsType[*RefusedError](err)
	return ok && refused.Code == FundsReserved
}

// submit calls the rail, once. What it has done is asked for, and not done again, where no answer comes.
func (x *execution) submit(ctx context.Context) (Submission, error) {
	if err := x.lock.CheckStillHeld(); err != nil {
		return Submission{}, fmt.Errorf("submit payout: %w", err)
	}
	ctx, cancel := x.detached(ctx)
	defer cancel()
	x.tell(ctx, RailSubmission, nil)
	var sent Submission
	err := bounded(ctx, x.limits.Rail, func(ctx context.Context) (err error) {
		x.presented = ResourceRail
		sent, err = x.rail.Submit(ctx, x.token, x.payout)
		return err
	})
	if err == nil || errors.Is(err, lock.ErrFencedOut) {
		return sent, wrap("submit payout", err)
	}
	sent, there, lookupErr := x.lookup(ctx)
	if lookupErr == nil && !there {
		lookupErr = errors.New("there is no submission yet, and one may still be on its way")
	}
	if lookupErr != nil {
		return Submission{}, fmt.Errorf("submit payout: %w", errors.Join(err, lookupErr))
	}
	return sent, nil
}

// evidence asks what an earlier holder's submission came to, and submits where there was none and will be none.
func (x *execution) evidence(ctx context.Context) (Submission, error) {
	sent, there, err := x.lookup(ctx)
	switch {
	case err != nil || there:
		return sent, err
	case x.payout.State == StateRailAmbiguous:
		return Submission{Outcome: Unknown}, nil // never submitted again, by anyone
	}
	return x.submit(ctx)
}

func (x *execution) lookup(ctx context.Context) (sent Submission, there bool, err error) {
	err = x.repeat(ctx, x.limits.Rail, func(ctx context.Context) (err error) {
		x.presented = ResourceRail
		sent, there, err = x.rail.Lookup(ctx, x.token, x.payout.Ref)
		return wrap("look up submission", err)
	})
	return sent, there, err
}

// settle writes down what the rail has done. It starts nothing.
func (x *execution) settle(ctx context.Context, sent Submission) (Outcome, error) {
	ctx, cancel := x.detached(ctx)
	defer cancel()
	if x.payout.State == StateRailAcked {
		return Posted, x.post(ctx)
	}
	step := Step{Ref: x.payout.Ref, From: x.payout.State}
	outcome, kind := Outcome(""), EventKind("")
	switch sent.Outcome {
	case Acked:
		step.To, step.Reference = StateRailAcked, sent.Reference
	case Rejected:
		step.To, step.Reason = StateFailed, brief(sent.Reason)
		outcome, kind = Failed, PayoutFailed
	case Unknown:
		if x.payout.State == StateRailAmbiguous {
			return Unresolved, nil
		}
		step.To, step.Reason = StateRailAmbiguous, answerLost
		outcome, kind = Ambiguous, RailAmbiguity
	default:
		return "", fmt.Errorf("settle payout: the outcome %q is unknown", sent.Outcome)
	}
	if err := x.repeat(ctx, x.limits.Try, x.move(step)); err != nil {
		return "", err
	}
	if outcome != "" {
		x.tell(ctx, kind, nil)
		return outcome, nil
	}
	return Posted, x.post(ctx)
}

// post writes the ledger. The new balance is computed from what the claim showed, which the lock and the fence keep true.
func (x *execution) post(ctx context.Context) error {
	err := x.repeat(ctx, x.limits.Try, func(ctx context.Context) error {
		x.presented = ResourceLedger
		picture, err := x.payments.Post(ctx, x.token, x.payout.Ref, x.balance-x.payout.Amount)
		if err == nil {
			x.payout = picture.Payout
		}
		return wrap("post payout", err)
	})
	if err == nil {
		x.tell(ctx, PayoutPosted, nil)
	}
	return err
}

// move is the call for a step.
func (x *execution) move(step Step) func(context.Context) error {
	return func(ctx context.Context) error {
		x.presented = ResourceAccount
		moved, err := x.payments.Advance(ctx, x.token, step)
		if err == nil {
			x.payout = moved
		}
		return wrap("move payout to "+string(step.To), err)
	}
}

// begins is repeat for a call that begins something: before each try the lock must still be held.
func (x *execution) begins(ctx context.Context, call func(context.Context) error) error {
	return x.repeat(ctx, x.limits.Try, func(ctx context.Context) error {
		if err := x.lock.CheckStillHeld(); err != nil {
			return wrap("check lock", err)
		}
		return call(ctx)
	})
}

// repeat sends a call until it is answered, or ctx ends. It is for calls that the services answer as the first time when
// the same token sends them again.
func (e *Executor) repeat(ctx context.Context, patience time.Duration, call func(context.Context) error) error {
	pause := e.limits.PauseBase
	for {
		err := bounded(ctx, patience, call)
		if err == nil || !lock.IsRetryable(err) || !sleep(ctx, rand.N(pause)+1) { //nolint:gosec // jitter is no secret
			return err
		}
		pause = min(2*pause, e.limits.PauseMost)
	}
}

// detached is a context for what must be written down, whatever becomes of the caller and the lock.
func (e *Executor) detached(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(ctx), e.limits.Settle)
}

func (x *execution) tell(ctx context.Context, kind EventKind, err error) {
	x.observer.Observe(ctx, Event{
		Kind: kind, Payout: x.payout, Token: x.token.Number, Took: time.Since(x.began), Resource: x.presented, Err: err,
	})
}

func bounded(ctx context.Context, patience time.Duration, call func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	return call(ctx)
}

// sleep returns false if ctx ends first.
func sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}

func wrap(what string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s: %w", what, err)
}

// brief cuts a text of others to what a reason may be.
func brief(text string) string {
	runes := []rune(text)
	return string(runes[:min(len(runes), maxReason)])
}
