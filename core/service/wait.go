package service

import (
	"context"
	"time"

	"github.com/fencelock/fencelock/core/lock"
	"github.com/fencelock/fencelock/core/port"
)

// soonest is the least time between two tries that the end of a grant is expected at.
const soonest = 10 * time.Millisecond

// stand puts the call in line and waits. The head of the line contends, in the
// goroutine of its own caller; the others sleep until they are the head or are answered.
func (s *Service) stand(
	ctx context.Context, req AcquireRequest, c *call, holder lock.Holder, inDoubt bool,
) (AcquireResult, error) {
	arrived := c.arrived
	p, err := s.lines.join(req.GrantRequest, c, holder, inDoubt)
	if err != nil {
		return AcquireResult{}, err
	}
	s.bells.ring(req.Key)
	s.reportWaiters(ctx)
	defer func() {
		s.bells.ring(req.Key)
		s.reportWaiters(ctx)
	}()
	deadline := time.NewTimer(arrived + req.Wait - s.clock.Elapsed())
	defer deadline.Stop()
	h := &head{service: s, req: req.GrantRequest, wait: req.Wait, call: c, place: p, heldAt: -1}
	defer h.stop()
	for {
		if a := h.contend(ctx); a != nil {
			return result(arrived, *a)
		}
		select {
		case a := <-c.answers:
			return result(arrived, a)
		case <-c.nudge:
			h.polled = false
		case <-h.fired():
			h.spent, h.polled = true, false
		case <-h.due():
			h.polled = h.fallback
		case <-deadline.C:
			return s.depart(ctx, req, h, nil)
		case <-s.flight.stopping:
			return s.depart(ctx, req, h, errDraining)
		case <-ctx.Done():
			return s.depart(ctx, req, h, func(unknown bool) error { return errLeft(ctx, unknown) })
		}
	}
}

func result(arrived time.Duration, a answer) (AcquireResult, error) {
	if a.err != nil {
		return AcquireResult{}, a.err
	}
	return grantedBy(arrived, a), nil
}

// depart takes the call out of the line. A handoff that is on its way to it is awaited, for a
// store call's time at most, unless the caller is gone. early is the error of a
// wait that ends before its time; nil concludes the wait.
func (s *Service) depart(ctx context.Context, req AcquireRequest, h *head, early func(unknown bool) error) (AcquireResult, error) {
	arrived := h.call.arrived
	limit := time.NewTimer(s.cfg.StoreTimeout)
	defer limit.Stop()
	for force := ctx.Err() != nil; ; {
		d := s.lines.leave(h.place, h.call, force)
		switch {
		case d.answered != nil:
			return result(arrived, *d.answered)
		case d.offer != nil:
			select {
			case <-d.offer:
			case <-limit.C:
				force = true
			case <-ctx.Done():
				force = true
			}
		case ctx.Err() != nil:
			return AcquireResult{}, errLeft(ctx, d.unknown)
		case early != nil:
			return AcquireResult{}, early(d.unknown)
		case h.heldAt >= arrived+req.Wait && !d.unknown:
			return AcquireResult{Attempt: port.Attempt{Holder: d.holder}}, nil // the store has just said so
		default:
			return s.conclude(ctx, req, arrived, d)
		}
	}
}

// head is what a call does while it stands first in line.
type head struct {
	service *Service
	req     port.GrantRequest
	wait    time.Duration
	call    *call
	place   *place

	wake port.Wake
	// spent: the wake has fired and says nothing more.
	spent bool
	timer *time.Timer
	// fallback: the timer is the fallback poll; polled: that poll led to this try.
	fallback, polled bool
	failures         int
	// heldAt is when the last try found the key held; -1 if it did not.
	heldAt time.Duration
}

// contend makes a try if the call stands first and need not pause. It returns
// the answer that ends the wait, or nil.
//
// The order is what makes a release impossible to miss: register first, then try, and only then
// wait. A release before the try is found by the try, one after it fires the wake.
func (h *head) contend(ctx context.Context) *answer {
	s := h.service
	h.stopTimer()
	now := s.clock.Elapsed()
	at := s.lines.look(h.place, h.call, now)
	if !at.head {
		return nil
	}
	if at.pause > 0 {
		h.sleep(at.pause, false)
		return nil
	}
	h.register(at.observed)
	attempt, err := s.try(ctx, h.req, s.patience(h.call.arrived, h.wait))
	switch {
	case err == nil && attempt.Granted:
		return h.won(ctx, answer{grant: attempt.Grant, began: now})
	case err == nil:
		h.failures, h.heldAt = 0, s.clock.Elapsed()
		s.lines.saw(h.place, h.call, attempt.Holder)
		h.await(attempt.Holder)
		return nil
	case lock.IsRetryable(err):
		if lock.IsAmbiguous(err) {
			s.lines.doubts(h.place)
		}
		h.sleep(backoff(h.failures), false)
		h.failures++
		h.heldAt = -1
		return nil
	}
	a := answer{err: err}
	s.lines.resolve(h.place, h.call, a)
	return &a
}

// won takes the grant out of the line.
func (h *head) won(ctx context.Context, a answer) *answer {
	s := h.service
	if s.lines.resolve(h.place, h.call, a) {
		s.granted(ctx, a.grant)
		if h.polled {
			s.observe(ctx, port.Event{Kind: port.EventFallback, Key: a.grant.Key})
		}
	}
	return &a
}

// await sets the timer for the moment at which the key can be free at the
// latest, or for the fallback poll.
func (h *head) await(holder lock.Holder) {
	poll := h.service.cfg.FallbackPoll
	poll = between(poll/10, poll)
	if within := holder.FreeWithin; within > 0 && within < poll {
		h.sleep(max(within, soonest), false)
		return
	}
	h.sleep(poll, true)
}

// register renews the registration. The new one begins before the old one ends: an adapter
// may stop its notifications when nobody is registered.
func (h *head) register(observed lock.Token) {
	old := h.wake
	h.wake, h.spent = h.service.backend.Waiter.Register(h.req.Key, observed), false
	if old != nil {
		old.Cancel()
	}
}

func (h *head) fired() <-chan struct{} {
	if h.wake == nil || h.spent {
		return nil
	}
	return h.wake.Fired()
}

func (h *head) sleep(d time.Duration, fallback bool) {
	h.timer, h.fallback = time.NewTimer(d), fallback
}

func (h *head) due() <-chan time.Time {
	if h.timer == nil {
		return nil
	}
	return h.timer.C
}

func (h *head) stopTimer() {
	if h.timer != nil {
		h.timer.Stop()
		h.timer = nil
	}
}

func (h *head) stop() {
	h.stopTimer()
	if h.wake != nil {
		h.wake.Cancel()
	}
}
