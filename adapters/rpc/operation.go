package rpc

import (
	"context"
	"runtime/debug"
	"time"

	"github.com/fencelock/fencelock/contracts/api/fencelock/v1/fencelockv1connect"

	fencelockv1 "github.com/fencelock/fencelock/contracts/api/fencelock/v1"
	"github.com/fencelock/fencelock/core/lock"
)

// start begins one operation and reports whether the stream goes on. Acquires that stand in line have a
// bound of their own and are refused beyond it: if they held the reader up, the heartbeats behind them
// would come too late.
func (s *attached) start(op *fencelockv1.Operation, receivedAt time.Duration) bool {
	slot, parent := s.operations, s.ctx
	if op.GetAcquire().GetWait().AsDuration() > 0 {
		parent = s.waits
		select {
		case s.waiting <- struct{}{}:
			slot = s.waiting
		default:
			return s.answerNow(op, errTooManyWaits())
		}
	} else {
		select {
		case s.operations <- struct{}{}:
		case <-s.ctx.Done():
			return false
		}
	}
	if cancelled := op.GetCancel(); cancelled != nil {
		s.cancelOperation(cancelled.GetId())
		s.out.add(&fencelockv1.OperationResult{
			Id: op.GetId(), Result: &fencelockv1.OperationResult_Cancel{Cancel: &fencelockv1.CancelResult{}},
		}, slot)
		return true
	}
	ctx, cancel := context.WithCancel(parent)
	if !s.register(op.GetId(), cancel) {
		cancel()
		s.out.add(failure(op.GetId(), lock.Invalid("id", "is in flight already")), slot)
		return true
	}
	s.running.Go(func() {
		result := s.carryOut(ctx, op, receivedAt)
		result.Id = op.GetId()
		s.unregister(op.GetId())
		cancel()
		s.out.add(result, slot)
	})
	return true
}

// answerNow answers an operation that was not started, in a slot of the short ones.
func (s *attached) answerNow(op *fencelockv1.Operation, err error) bool {
	select {
	case s.operations <- struct{}{}:
		s.out.add(failure(op.GetId(), err), s.operations)
		return true
	case <-s.ctx.Done():
		return false
	}
}

func errTooManyWaits() error {
	return &lock.Error{Code: lock.CodeTooManyWaiters, Message: "too many waits on this stream", RetryAfter: time.Second}
}

// carryOut runs one operation. A panic ends the operation, not the process.
func (s *attached) carryOut(
	ctx context.Context, op *fencelockv1.Operation, receivedAt time.Duration,
) (result *fencelockv1.OperationResult) {
	defer func() {
		if value := recover(); value != nil {
			s.cfg.Panicked(ctx, fencelockv1connect.SessionServiceAttachProcedure, value, debug.Stack())
			result = &fencelockv1.OperationResult{Result: &fencelockv1.OperationResult_Error{Error: unknownOutcome(internalMessage)}}
		}
	}()
	result, session, err := s.call(ctx, op, receivedAt)
	if err != nil {
		return failure(op.GetId(), err)
	}
	if id, err := lock.ParseSessionID(session); err == nil {
		s.news.Add(id)
	}
	return result
}

// call dispatches; session is the id that the operation has proved to know by succeeding.
func (s *attached) call(
	ctx context.Context, op *fencelockv1.Operation, receivedAt time.Duration,
) (result *fencelockv1.OperationResult, session string, err error) {
	result = &fencelockv1.OperationResult{}
	switch call := op.GetCall().(type) {
	case *fencelockv1.Operation_Heartbeat:
		answer, err := s.calls.heartbeat(ctx, receivedAt, call.Heartbeat)
		result.Result = &fencelockv1.OperationResult_Heartbeat{Heartbeat: answer}
		return result, call.Heartbeat.GetSessionId(), err
	case *fencelockv1.Operation_Acquire:
		answer, err := s.calls.acquire(ctx, call.Acquire)
		result.Result = &fencelockv1.OperationResult_Acquire{Acquire: answer}
		return result, call.Acquire.GetSessionId(), err
	case *fencelockv1.Operation_Extend:
		answer, err := s.calls.extend(ctx, call.Extend)
		result.Result = &fencelockv1.OperationResult_Extend{Extend: answer}
		return result, call.Extend.GetSessionId(), err
	case *fencelockv1.Operation_Release:
		answer, err := s.calls.release(ctx, call.Release)
		result.Result = &fencelockv1.OperationResult_Release{Release: answer}
		return result, "", err // false is the answer for an unknown session too: it proves nothing
	case *fencelockv1.Operation_Abandon:
		answer, err := s.calls.abandon(ctx, call.Abandon)
		result.Result = &fencelockv1.OperationResult_Abandon{Abandon: answer}
		return result, "", err
	}
	return nil, "", lock.Invalid("call", "must be one of the operations")
}

func failure(id uint64, err error) *fencelockv1.OperationResult {
	return &fencelockv1.OperationResult{Id: id, Result: &fencelockv1.OperationResult_Error{Error: detailOf(err)}}
}

// register notes an operation in flight and reports false if its id is taken.
func (s *attached) register(id uint64, cancel context.CancelFunc) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, taken := s.inFlight[id]; taken {
		return false
	}
	s.inFlight[id] = cancel
	return true
}

func (s *attached) unregister(id uint64) {
	s.mu.Lock()
	delete(s.inFlight, id)
	s.mu.Unlock()
}

func (s *attached) cancelOperation(id uint64) {
	s.mu.Lock()
	cancel := s.inFlight[id]
	s.mu.Unlock()
	if cancel != nil {
		cancel()
	}
}
