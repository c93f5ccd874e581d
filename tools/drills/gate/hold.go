package gate

import (
	"context"
	"errors"
	"fmt"
	"sync"
)

// ErrDropped says that the call was dropped, or its gate closed.
var ErrDropped = errors.New("the call was dropped")

// Hold keeps one call back.
type Hold struct {
	match  func(Call) bool
	answer bool

	once    sync.Once
	taken   bool // guarded by the gate's mu
	call    Call // written before reached is closed
	reached chan struct{}
	letGo   chan struct{}
	dropped bool // written before letGo is closed
	done    chan struct{}
	got     Answer // written before done is closed
}

func newHold(match func(Call) bool, answer bool) *Hold {
	return &Hold{
		match: match, answer: answer,
		reached: make(chan struct{}), letGo: make(chan struct{}), done: make(chan struct{}),
	}
}

// Reached is closed when a call is being kept.
func (h *Hold) Reached() <-chan struct{} { return h.reached }

// Call is what is being kept, after [Hold.Reached].
func (h *Hold) Call() Call { return h.call }

// Let lets the call go on its way, now or when it comes. What was dropped stays so.
func (h *Hold) Let() { h.end(false) }

// Drop ends the call: a request that is kept is never delivered, an answer neither; its caller, if it is still there, sees
// the connection end.
func (h *Hold) Drop() { h.end(true) }

func (h *Hold) end(drop bool) {
	h.once.Do(func() {
		h.dropped = drop
		close(h.letGo)
	})
}

// Wait blocks until the service has answered the call, after [Hold.Let], and returns its answer. It returns
// [ErrDropped], or the context's error.
func (h *Hold) Wait(ctx context.Context) (Answer, error) {
	select {
	case <-h.done:
	case <-ctx.Done():
		return Answer{}, fmt.Errorf("wait for the held call: %w", context.Cause(ctx))
	}
	if h.got.Status == 0 {
		return Answer{}, ErrDropped
	}
	return h.got, nil
}

// take reports whether the call is the one to keep.
func (h *Hold) take(c Call) bool {
	if h.taken || !h.match(c) {
		return false
	}
	h.taken, h.call = true, c
	return true
}

// keep blocks until the call may go, and reports whether it may.
func (h *Hold) keep() bool {
	close(h.reached)
	<-h.letGo
	return !h.dropped
}
