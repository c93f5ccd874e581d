package gate

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"sync"
)

// ErrDropped: the call was dropped, or its gate closed.
var ErrDropped = errors.New("the call was dropped")

// Answer is what the service said to a held call.
type Answer struct {
	// Status is the HTTP status; 502 where the service did not answer.
	Status int
	// Body is JSON for an error, else a message in the encoding of the call.
	Body []byte
}

// Hold keeps one call back.
type Hold struct {
	match  func(Call) bool
	answer bool

	once    sync.Once
	taken   bool // guarded by the gate's mu
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
	h.taken = true
	return true
}

// keep blocks until the call may go, and reports whether it may.
func (h *Hold) keep() bool {
	close(h.reached)
	<-h.letGo
	return !h.dropped
}

// answer is a response that is kept in memory.
type answer struct {
	header http.Header
	status int
	body   bytes.Buffer
}

// Header implements http.ResponseWriter.
func (a *answer) Header() http.Header { return a.header }

// WriteHeader implements http.ResponseWriter.
func (a *answer) WriteHeader(status int) {
	if a.status == 0 && status >= http.StatusOK {
		a.status = status
	}
}

// Write implements http.ResponseWriter.
func (a *answer) Write(b []byte) (int, error) {
	a.WriteHeader(http.StatusOK)
	return a.body.Write(b) //nolint:wrapcheck // A buffer does not fail.
}

// copyTo hands the response on. Its receiver may be gone.
func (a *answer) copyTo(w http.ResponseWriter) {
	maps.Copy(w.Header(), a.header)
	w.WriteHeader(a.status)
	_, _ = w.Write(a.body.Bytes())
}
