package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/fencelock/fencelock/apps/payout-executor/internal/model"
	"github.com/fencelock/fencelock/apps/payout-executor/internal/payout"
	"github.com/fencelock/fencelock/core/lock"
)

// TestALostLockBeginsNothing takes the lock away at each boundary of each start. Once the holder knows, it begins nothing any more; what
// it has begun it writes down.
func TestALostLockBeginsNothing(t *testing.T) {
	t.Parallel()
	everywhere(t, func(t *testing.T, s *stage, _ start, n int) bool {
		t.Helper()
		faults, reached := loseAt(t, s, func(p ports) ports { return p }, n)
		for _, fault := range faults {
			t.Error(fault)
		}
		return reached
	})
}

// loseAt executes with what plant makes of the ports, and loses the lock at the boundary n.
func loseAt(t *testing.T, s *stage, plant func(ports) ports, n int) (faults []string, reached bool) {
	t.Helper()
	var begun int
	steps := &stepper{}
	steps.on = func(at int, name string) error {
		if at != n {
			return nil
		}
		steps.lose(t)
		begun = len(beginnings(s.Calls()))
		if slices.Contains([]string{"before claim", "before advance RAIL_SUBMITTED", "before submit"}, name) {
			begun++ // the lock was asked before, and the call is on its way
		}
		reached = true
		return nil
	}
	e, _ := plant(s.ports(t).stepped(steps)).executor()
	e.Execute(t.Context(), the())
	if after := beginnings(s.Calls()); n > 1 && reached && len(after) > begun {
		faults = append(faults, fmt.Sprintf("lost %s, and then: %v", steps.name(n), after[begun:]))
	}
	return faults, reached
}

// TestWhatTheRailHasDoneIsWrittenDown takes the lock away, and ends the caller's context, at each boundary from the call of the rail on.
func TestWhatTheRailHasDoneIsWrittenDown(t *testing.T) {
	t.Parallel()
	tried := 0
	for n := 0; ; n++ {
		s := newStage(t)
		ctx, cancel := context.WithCancel(t.Context())
		submitting, lost := false, false
		steps := &stepper{}
		steps.on = func(at int, name string) error {
			submitting = submitting || name == "before submit"
			if at == n && submitting {
				steps.lose(t)
				cancel()
				lost = true
			}
			return nil
		}
		e, _ := s.ports(t).stepped(steps).executor()
		result := e.Execute(ctx, the())
		cancel()
		s.wantPosted(t)
		if result.Outcome != payout.Posted || t.Failed() {
			t.Fatalf("lost %s: %+v", steps.name(n), result)
		}
		if lost {
			tried++
		} else if tried > 0 {
			break
		}
	}
	if tried < 6 {
		t.Errorf("only %d boundaries", tried)
	}
}

// troubles are what can become of a call, once.
func troubles() map[string]model.Passage {
	return map[string]model.Passage{
		"request lost": {RequestLost: true},
		"answer lost":  {AnswerLost: true},
		"unavailable":  {Refuse: model.NotAnswered()},
	}
}

// methods are all that an executor calls, as the model names them.
func methods() []string {
	return []string{
		"GetPayout", "Claim", "Advance RAIL_SUBMITTED", "Advance ABANDONED", "Submit", "Lookup",
		"Advance RAIL_ACKED", "Advance FAILED", "Advance RAIL_AMBIGUOUS", "Post",
	}
}

// TestTroubleWithAnyCallIsHarmless: for each start, each call and each trouble.
func TestTroubleWithAnyCallIsHarmless(t *testing.T) {
	t.Parallel()
	for _, st := range starts() {
		t.Run(st.name, func(t *testing.T) {
			t.Parallel()
			calm := st.begin(t)
			calm.recover(t)
			for _, method := range methods() {
				for name, trouble := range troubles() {
					if calm.Count(method) == 0 && method != "Lookup" {
						continue // there is no such call from here
					}
					s := st.begin(t)
					s.Weather(func(c model.Call) model.Passage {
						if c.Method == method && c.N == 1 {
							return trouble
						}
						return model.Passage{}
					})
					s.recover(t)
					st.check(t, s)
					if t.Failed() {
						t.Fatalf("%s: %s; calls: %s", method, name, s.methods())
					}
				}
			}
		})
	}
}

// TestAFencedOutExecutorStopsAtOnce: for each write, of each start that makes it.
func TestAFencedOutExecutorStopsAtOnce(t *testing.T) {
	t.Parallel()
	fenced := map[string]bool{}
	var mu sync.Mutex
	t.Run("starts", func(t *testing.T) {
		t.Parallel()
		for _, st := range starts() {
			for _, method := range methods()[1:] {
				t.Run(st.name+", "+method, func(t *testing.T) {
					t.Parallel()
					s := st.begin(t)
					if fencedOutAt(t, s, s.ports(t), method) {
						mu.Lock()
						fenced[method] = true
						mu.Unlock()
					}
					st.check(t, s)
				})
			}
		}
	})
	t.Cleanup(func() {
		for _, method := range methods()[1:] {
			if !fenced[method] {
				t.Errorf("%s was never fenced out: this shows nothing of it", method)
			}
		}
	})
}

// fencedOutAt refuses the first call of a method, and looks that the execution ends with it. Then another one finishes the payout.
func fencedOutAt(t *testing.T, s *stage, p ports, method string) (happened bool) {
	t.Helper()
	var refused model.Call
	s.Weather(func(c model.Call) model.Passage {
		if c.Method == method && c.N == 1 {
			refused, happened = c, true
			return model.Passage{Refuse: model.FencedOut()}
		}
		return model.Passage{}
	})
	e, told := p.executor()
	result := e.Execute(t.Context(), the())
	if happened {
		calls := s.Calls()
		if last := calls[len(calls)-1]; last.Method != method || last.Token != refused.Token {
			t.Errorf("after it was fenced out: %+v", last)
		}
		if result.Outcome != payout.Left || !errors.Is(result.Err, lock.ErrFencedOut) {
			t.Errorf("result %+v", result)
		}
		if kinds := told.kinds(); !strings.HasSuffix(kinds, string(payout.FencedOut)) || strings.Count(kinds, "fenced_out") != 1 {
			t.Errorf("it tells %s", kinds)
		}
		if got, want := told.last().Resource, refuser(method); got != want {
			t.Errorf("refused by the resource %q; want %q", got, want)
		}
	}
	// The lock was released: the next one need not wait for it.
	s.recover(t)
	return happened
}

// refuser is the resource whose fence may refuse the call.
func refuser(method string) payout.Resource {
	switch method {
	case "Submit", "Lookup":
		return payout.ResourceRail
	case "Post":
		return payout.ResourceLedger
	}
	return payout.ResourceAccount
}

// TestManyExecutorsAtOnePayout: all at once, until it is over.
func TestManyExecutorsAtOnePayout(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	var running sync.WaitGroup
	for range 6 {
		p := s.ports(t)
		running.Go(func() {
			e, _ := p.executor()
			for s.State(thePayout) != wire(payout.StatePosted) && t.Context().Err() == nil {
				if r := e.Execute(t.Context(), the()); r.Outcome == payout.Left {
					t.Errorf("left: %v", r.Err)
				}
			}
		})
	}
	running.Wait()
	s.wantPosted(t)
}

// TestWhatIsToldOfAnExecution: the events of each end.
func TestWhatIsToldOfAnExecution(t *testing.T) {
	t.Parallel()
	want := map[string]string{
		"pending":                  "payout_claimed rail_submitted payout_posted",
		"pending, declined":        "payout_claimed rail_submitted payout_failed",
		"pending, request lost":    "payout_claimed rail_submitted rail_ambiguous",
		"pending, balance too low": "payout_claimed payout_abandoned",
		"submitted, nothing sent":  "payout_claimed rail_submitted payout_posted",
		"submitted, acked":         "payout_claimed payout_posted",
		"ambiguous, not executed":  "payout_claimed",
		"acked":                    "payout_claimed payout_posted",
		"posted":                   "",
	}
	for _, st := range starts() {
		told, there := want[st.name]
		if !there {
			continue
		}
		delete(want, st.name)
		t.Run(st.name, func(t *testing.T) {
			t.Parallel()
			s := st.begin(t)
			e, r := s.ports(t).executor()
			result := e.Execute(t.Context(), the())
			if got := r.kinds(); got != told {
				t.Errorf("it tells %q, want %q", got, told)
			}
			for _, event := range r.events {
				if event.Token != result.Token || event.Payout.ID != thePayout {
					t.Errorf("event %+v, token %d", event, result.Token)
				}
			}
		})
	}
	if len(want) > 0 {
		t.Errorf("no such starts: %v", want)
	}
}
