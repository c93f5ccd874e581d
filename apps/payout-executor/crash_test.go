package main

import (
	"errors"
	"testing"

	"github.com/fencelock/fencelock/apps/payout-executor/internal/model"
	"github.com/fencelock/fencelock/apps/payout-executor/internal/payout"
	paymentsv1 "github.com/fencelock/fencelock/contracts/api/fencelock/payments/v1"
)

// start is a state in which an earlier holder, of token 5, may have left the payout.
type start struct {
	name string
	// put makes it so.
	put func(s *stage)
	// want is where it must end, with evidence.
	want payout.State
}

const (
	unknown  = paymentsv1.SubmissionOutcome_SUBMISSION_OUTCOME_UNSPECIFIED
	acked    = paymentsv1.SubmissionOutcome_SUBMISSION_OUTCOME_ACKED
	rejected = paymentsv1.SubmissionOutcome_SUBMISSION_OUTCOME_REJECTED
)

// starts are all of them: each state, with each record that the proxy may have.
func starts() []start {
	left := func(state payout.State) func(*stage) {
		return func(s *stage) { s.Put(thePayout, wire(state), 5, "") }
	}
	sent := func(state payout.State, outcome paymentsv1.SubmissionOutcome, executed bool) func(*stage) {
		return func(s *stage) {
			s.Put(thePayout, wire(state), 5, "")
			s.Send(thePayout, 5, outcome, executed)
		}
	}
	to := func(destination string) func(*stage) {
		return func(s *stage) {
			s.Tamper(func(b *model.Books) { b.Payouts[0].Destination = destination })
		}
	}
	return []start{
		{"pending", func(*stage) {}, payout.StatePosted},
		{"pending, declined", to(model.Decline), payout.StateFailed},
		{"pending, reply lost", to(model.LostReply), payout.StatePosted},
		{"pending, request lost", to(model.LostRequest), payout.StateRailAmbiguous},
		{"pending, balance too low", func(s *stage) {
			s.Tamper(func(b *model.Books) { b.Payouts[0].Amount = theBalance + 1 })
		}, payout.StateAbandoned},
		{"claimed", left(payout.StateClaimed), payout.StatePosted},
		{"submitted, nothing sent", left(payout.StateRailSubmitted), payout.StatePosted},
		{"submitted, acked", sent(payout.StateRailSubmitted, acked, true), payout.StatePosted},
		{"submitted, rejected", sent(payout.StateRailSubmitted, rejected, false), payout.StateFailed},
		{"submitted, no outcome, executed", sent(payout.StateRailSubmitted, unknown, true), payout.StatePosted},
		{"submitted, no outcome, not executed", sent(payout.StateRailSubmitted, unknown, false), payout.StateRailAmbiguous},
		{"ambiguous, executed", sent(payout.StateRailAmbiguous, unknown, true), payout.StatePosted},
		{"ambiguous, not executed", sent(payout.StateRailAmbiguous, unknown, false), payout.StateRailAmbiguous},
		{"ambiguous, acked", sent(payout.StateRailAmbiguous, acked, true), payout.StatePosted},
		{"ambiguous, rejected", sent(payout.StateRailAmbiguous, rejected, false), payout.StateFailed},
		{"ambiguous, no record", left(payout.StateRailAmbiguous), payout.StateRailAmbiguous},
		{"acked", sent(payout.StateRailAcked, acked, true), payout.StatePosted},
		{"posted", func(s *stage) {
			sent(payout.StateRailAcked, acked, true)(s)
			s.Settle(thePayout, 5)
		}, payout.StatePosted},
		{"failed", sent(payout.StateFailed, rejected, false), payout.StateFailed},
		{"abandoned", left(payout.StateAbandoned), payout.StateAbandoned},
	}
}

// begin is a stage in the start.
func (st start) begin(t *testing.T) *stage {
	t.Helper()
	s := newStage(t)
	st.put(s)
	return s
}

// check compares where the payout has ended. Nothing was ever sent twice, or without need.
func (st start) check(t *testing.T, s *stage) {
	t.Helper()
	s.wantState(t, st.want)
	if st.want == payout.StatePosted {
		s.wantPosted(t)
	} else if b := s.Balance(theAccount); b != theBalance {
		t.Errorf("the balance is %d", b)
	}
}

// TestEveryStateIsTakenToItsEnd: one execution, and a second look where there was no answer.
func TestEveryStateIsTakenToItsEnd(t *testing.T) {
	t.Parallel()
	for _, st := range starts() {
		t.Run(st.name, func(t *testing.T) {
			t.Parallel()
			s := st.begin(t)
			s.recover(t)
			st.check(t, s)
			if s.Refused() != 0 {
				t.Errorf("%d calls were fenced out of a lone executor's", s.Refused())
			}
		})
	}
}

// errDead is what a process that is gone gets from its calls, which are not sent.
var errDead = errors.New("the process is gone")

// TestACrashAnywhereIsRecoveredFrom lets an executor die at each boundary of each start; the next one finds the lock free and goes on.
func TestACrashAnywhereIsRecoveredFrom(t *testing.T) {
	t.Parallel()
	everywhere(t, func(t *testing.T, s *stage, _ start, n int) (died bool) {
		t.Helper()
		released := make(chan struct{})
		reached := make(chan struct{})
		steps := &stepper{}
		steps.on = func(at int, _ string) error {
			if at < n {
				return nil
			}
			if at == n {
				close(reached)
				<-released
			}
			return errDead
		}
		e, _ := s.ports(t).stepped(steps).executor()
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			e.Execute(t.Context(), the())
		}()
		defer func() {
			close(released)
			<-ended
		}()
		select {
		case <-reached:
		case <-ended:
			return false
		}
		s.revoke(t, theAccount)
		s.recover(t)
		t.Logf("died %s", steps.name(n))
		return true
	})
}

// TestAPauseAnywhereDoesNoHarm stops an executor at each boundary of each start, lets another one finish the work, and wakes it up.
func TestAPauseAnywhereDoesNoHarm(t *testing.T) {
	t.Parallel()
	everywhere(t, func(t *testing.T, s *stage, _ start, n int) (paused bool) {
		t.Helper()
		steps := &stepper{}
		steps.on = func(at int, name string) error {
			if at == n {
				paused = true
				t.Logf("paused %s", name)
				s.revoke(t, theAccount)
				s.recover(t)
			}
			return nil
		}
		e, _ := s.ports(t).stepped(steps).executor()
		e.Execute(t.Context(), the())
		s.recover(t) // what the woken one has begun, if nobody was there before it
		return paused
	})
}

// everywhere runs a trial for each start and each boundary: it stops where the trial says that the boundary was not reached.
func everywhere(t *testing.T, trial func(t *testing.T, s *stage, st start, n int) bool) {
	t.Helper()
	for _, st := range starts() {
		t.Run(st.name, func(t *testing.T) {
			t.Parallel()
			for n := 0; ; n++ {
				s := st.begin(t)
				reached := trial(t, s, st, n)
				s.recover(t)
				st.check(t, s)
				if t.Failed() {
					t.Fatalf("at boundary %d; calls: %s", n, s.methods())
				}
				if !reached {
					if n < 4 {
						t.Fatalf("only %d boundaries", n)
					}
					return
				}
			}
		})
	}
}
