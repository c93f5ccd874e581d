package payout_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/fencelock/fencelock/apps/payout-executor/internal/payout"
	"github.com/fencelock/fencelock/core/lock"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// world is everything around an execution, in which one payout goes the straight way unless a test changes a call.
type world struct {
	payout   payout.Payout
	balance  int64
	sent     payout.Submission
	there    bool
	calls    []string
	texts    map[string]bool
	get      func(ctx context.Context) error
	claim    func(ctx context.Context) error
	advance  func(ctx context.Context) error
	post     func(ctx context.Context) error
	submit   func(ctx context.Context) error
	lookup   func(ctx context.Context) error
	released bool
	lost     error
	end      context.CancelFunc
	held     context.Context //nolint:containedctx // what Context returns
	steps    []payout.Step
	events   []payout.Event
}

func newWorld() *world {
	w := &world{
		payout: payout.Payout{Ref: payout.Ref{ID: "p", Account: "a"}, Amount: 30, State: payout.StatePending}, balance: 100,
		sent: payout.Submission{Outcome: payout.Acked, Reference: "r"}, texts: map[string]bool{},
	}
	w.held, w.end = context.WithCancel(context.Background())
	return w
}

func (w *world) call(ctx context.Context, name string, token payout.Token, change func(context.Context) error) error {
	w.calls = append(w.calls, name)
	if token.Number != 0 {
		w.texts[token.Text] = true
	}
	if change != nil {
		return change(ctx)
	}
	return nil
}

func (w *world) TryAcquire(context.Context, string) (payout.Lock, error) { return w, nil }
func (w *world) Token() payout.Token                                     { return payout.Token{Number: 33, Text: "33.signed"} }
func (w *world) CheckStillHeld() error                                   { return w.lost }
func (w *world) Context() context.Context                                { return w.held }
func (w *world) Release(context.Context) error {
	w.released = true
	return nil
}

func (w *world) Get(ctx context.Context, _ string) (payout.Picture, error) {
	err := w.call(ctx, "get", payout.Token{}, w.get)
	return payout.Picture{Payout: w.payout, Balance: w.balance}, err
}

func (w *world) Claim(ctx context.Context, token payout.Token, _ payout.Ref) (payout.Picture, error) {
	err := w.call(ctx, "claim", token, w.claim)
	if err == nil && w.payout.State == payout.StatePending {
		w.payout.State = payout.StateClaimed
	}
	return payout.Picture{Payout: w.payout, Balance: w.balance}, err
}

func (w *world) Advance(ctx context.Context, token payout.Token, step payout.Step) (payout.Payout, error) {
	w.steps = append(w.steps, step)
	err := w.call(ctx, string(step.To), token, w.advance)
	if err == nil {
		w.payout.State = step.To
	}
	return w.payout, err
}

func (w *world) Post(ctx context.Context, token payout.Token, _ payout.Ref, after int64) (payout.Picture, error) {
	err := w.call(ctx, "post", token, w.post)
	if err == nil {
		w.payout.State, w.balance = payout.StatePosted, after
	}
	return payout.Picture{Payout: w.payout, Balance: w.balance}, err
}

func (w *world) Submit(ctx context.Context, token payout.Token, _ payout.Payout) (payout.Submission, error) {
	err := w.call(ctx, "submit", token, w.submit)
	return w.sent, err
}

func (w *world) Lookup(ctx context.Context, token payout.Token, _ payout.Ref) (payout.Submission, bool, error) {
	err := w.call(ctx, "lookup", token, w.lookup)
	return w.sent, w.there, err
}

func (w *world) Observe(_ context.Context, e payout.Event) { w.events = append(w.events, e) }

func (w *world) execute(ctx context.Context) payout.Result {
	return payout.New(w, w, w, w, payout.Limits{}).Execute(ctx, w.payout)
}

func (w *world) count(name string) (n int) {
	for _, call := range w.calls {
		if call == name {
			n++
		}
	}
	return n
}

// noAnswer is what a call gets whose answer does not come.
func noAnswer(context.Context) error { return lock.Contention("no answer", true, nil) }

// hangs never answers.
func hangs(ctx context.Context) error {
	<-ctx.Done()
	return lock.Contention("no answer", true, ctx.Err())
}

// run is a test in virtual time; the lock is over in the end.
func run(t *testing.T, test func(t *testing.T, w *world)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		defer w.end()
		test(t, w)
		if !w.released {
			t.Error("the lock was not released")
		}
	})
}

func TestTheStraightWay(t *testing.T) {
	t.Parallel()
	run(t, func(t *testing.T, w *world) {
		t.Helper()
		if r := w.execute(t.Context()); r.Outcome != payout.Posted || r.Token != 33 || r.Err != nil {
			t.Errorf("result %+v", r)
		}
		if got := strings.Join(w.calls, " "); got != "get claim RAIL_SUBMITTED submit RAIL_ACKED post" {
			t.Errorf("calls: %s", got)
		}
		if w.balance != 70 || w.steps[1].Reference != "r" {
			t.Errorf("balance %d, steps %+v", w.balance, w.steps)
		}
		if len(w.texts) != 1 || !w.texts["33.signed"] {
			t.Errorf("tokens presented: %v", w.texts)
		}
	})
}

// TestAServiceThatDoesNotAnswerIsLeft: before the rail was called, within the time for beginning; nothing is hammered.
func TestAServiceThatDoesNotAnswerIsLeft(t *testing.T) {
	t.Parallel()
	for name, answer := range map[string]func(context.Context) error{"fails": noAnswer, "hangs": hangs} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			run(t, func(t *testing.T, w *world) {
				t.Helper()
				w.claim = answer
				began := time.Now()
				r := w.execute(t.Context())
				took := time.Since(began)
				if r.Outcome != payout.Left || !errors.Is(r.Err, lock.ErrContention) {
					t.Errorf("result %+v", r)
				}
				if took < 25*time.Second || took > 35*time.Second || w.count("claim") > 100 || w.count("submit") > 0 {
					t.Errorf("it took %v, %d claims", took, w.count("claim"))
				}
			})
		})
	}
}

// TestAPostingIsTriedForLonger: money has left.
func TestAPostingIsTriedForLonger(t *testing.T) {
	t.Parallel()
	run(t, func(t *testing.T, w *world) {
		t.Helper()
		began := time.Now()
		w.post = func(context.Context) error {
			if time.Since(began) < 50*time.Second {
				return lock.ErrContention
			}
			return nil
		}
		if r := w.execute(t.Context()); r.Outcome != payout.Posted {
			t.Errorf("result %+v", r)
		}
	})
	run(t, func(t *testing.T, w *world) {
		t.Helper()
		w.post = noAnswer
		if r := w.execute(t.Context()); r.Outcome != payout.Left {
			t.Errorf("result %+v", r)
		}
		if w.payout.State != payout.StateRailAcked || w.count("submit") != 1 {
			t.Errorf("it is %s", w.payout.State)
		}
	})
}

// TestASubmissionIsNeverSentAgain: it fails in every way, and the record is looked up.
func TestASubmissionIsNeverSentAgain(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		submit  func(context.Context) error
		there   bool
		outcome payout.Outcome
	}{
		"no answer, it was sent":     {noAnswer, true, payout.Posted},
		"hangs, it was sent":         {hangs, true, payout.Posted},
		"no answer, no record":       {noAnswer, false, payout.Left},
		"hangs, no record":           {hangs, false, payout.Left},
		"it was sent before":         {func(context.Context) error { return &payout.RefusedError{Code: payout.Duplicate} }, true, payout.Posted},
		"refused as bad, no record":  {func(context.Context) error { return lock.ErrInvalid }, false, payout.Left},
		"fenced out, whatever there": {func(context.Context) error { return lock.ErrFencedOut }, true, payout.Left},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			run(t, func(t *testing.T, w *world) {
				t.Helper()
				w.submit, w.there = test.submit, test.there
				if r := w.execute(t.Context()); r.Outcome != test.outcome {
					t.Errorf("result %+v", r)
				}
				if w.count("submit") != 1 {
					t.Errorf("calls: %v", w.calls)
				}
				if name[:6] == "fenced" && w.count("lookup") > 0 {
					t.Errorf("calls: %v", w.calls)
				}
			})
		})
	}
}

func TestWhatANewerServiceSaysIsLeftAlone(t *testing.T) {
	t.Parallel()
	run(t, func(t *testing.T, w *world) {
		t.Helper()
		w.payout.State = "FROZEN"
		if r := w.execute(t.Context()); r.Outcome != payout.Left || w.count("submit") > 0 {
			t.Errorf("result %+v, calls %v", r, w.calls)
		}
	})
	run(t, func(t *testing.T, w *world) {
		t.Helper()
		w.sent.Outcome = "halfway"
		if r := w.execute(t.Context()); r.Outcome != payout.Left || w.payout.State != payout.StateRailSubmitted {
			t.Errorf("result %+v, it is %s", r, w.payout.State)
		}
	})
}

func TestAReasonOfTheRailIsCut(t *testing.T) {
	t.Parallel()
	run(t, func(t *testing.T, w *world) {
		t.Helper()
		w.sent = payout.Submission{Outcome: payout.Rejected, Reason: strings.Repeat("ä", 1000)}
		w.execute(t.Context())
		if got := w.steps[len(w.steps)-1]; got.To != payout.StateFailed || got.Reason != strings.Repeat("ä", 200) {
			t.Errorf("step %+v", got)
		}
	})
}

// TestTheEndOfTheLockEndsAWait: a call before the rail is given up when the lock is.
func TestTheEndOfTheLockEndsAWait(t *testing.T) {
	t.Parallel()
	run(t, func(t *testing.T, w *world) {
		t.Helper()
		w.get = func(ctx context.Context) error {
			w.end()
			return hangs(ctx)
		}
		began := time.Now()
		if r := w.execute(t.Context()); r.Outcome != payout.Left || time.Since(began) > time.Second {
			t.Errorf("result %+v after %v", r, time.Since(began))
		}
	})
}

// TestResolvingNeverSubmits: it does nothing for payouts that are not ambiguous.
func TestResolvingNeverSubmits(t *testing.T) {
	t.Parallel()
	for _, state := range []payout.State{payout.StatePending, payout.StateClaimed, payout.StateRailSubmitted, payout.StateRailAcked} {
		run(t, func(t *testing.T, w *world) {
			t.Helper()
			w.payout.State = state
			r := payout.New(w, w, w, w, payout.Limits{}).Resolve(t.Context(), w.payout)
			if r.Outcome != payout.Over || len(w.calls) != 1 {
				t.Errorf("%s: result %+v, calls %v", state, r, w.calls)
			}
		})
	}
	run(t, func(t *testing.T, w *world) {
		t.Helper()
		w.payout.State, w.there = payout.StateRailAmbiguous, true
		r := payout.New(w, w, w, w, payout.Limits{}).Resolve(t.Context(), w.payout)
		if r.Outcome != payout.Posted || w.count("submit") > 0 {
			t.Errorf("result %+v, calls %v", r, w.calls)
		}
	})
}

// TestAPayoutWhoseMoneyIsReservedWaits: that is told as what it is, and no other refusal is.
func TestAPayoutWhoseMoneyIsReservedWaits(t *testing.T) {
	t.Parallel()
	for code, want := range map[payout.Refusal]payout.Outcome{
		payout.FundsReserved: payout.Reserved, payout.InsufficientFunds: payout.Left, payout.WrongState: payout.Left,
	} {
		run(t, func(t *testing.T, w *world) {
			t.Helper()
			w.advance = func(context.Context) error { return &payout.RefusedError{Code: code} }
			r := w.execute(t.Context())
			if r.Outcome != want || (r.Err == nil) != (want == payout.Reserved) || r.Token != 33 {
				t.Errorf("%s: result %+v, want %s", code, r, want)
			}
			if w.payout.State != payout.StateClaimed || w.count("submit") != 0 || len(w.steps) != 1 {
				t.Errorf("%s: %s after %v", code, w.payout.State, w.calls)
			}
			told := payout.PayoutLeft
			if want == payout.Reserved {
				told = payout.PayoutReserved
			}
			if last := w.events[len(w.events)-1].Kind; last != told {
				t.Errorf("%s: told %s, want %s", code, last, told)
			}
		})
	}
}

// TestOnlyTheStepToTheRailWaits: the same refusal elsewhere is none that is understood.
func TestOnlyTheStepToTheRailWaits(t *testing.T) {
	t.Parallel()
	run(t, func(t *testing.T, w *world) {
		t.Helper()
		w.post = func(context.Context) error { return &payout.RefusedError{Code: payout.FundsReserved} }
		if r := w.execute(t.Context()); r.Outcome != payout.Left || r.Err == nil {
			t.Errorf("result %+v", r)
		}
	})
}
