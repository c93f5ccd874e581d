package service_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/fencelock/fencelock/core/service"
)

// abandoning is an abandon that runs in a goroutine.
type abandoning struct {
	w         *world
	done      chan struct{}
	withdrawn bool
	err       error
}

func (w *world) abandon(req service.AcquireRequest) *abandoning {
	a := &abandoning{w: w, done: make(chan struct{})}
	go func() {
		defer close(a.done)
		a.withdrawn, a.err = w.service.Abandon(w.Context(), req.Key, req.Session, req.RequestID)
	}()
	synctest.Wait()
	return a
}

// waits expects that the abandon has not been answered.
func (a *abandoning) waits() {
	a.w.Helper()
	synctest.Wait()
	select {
	case <-a.done:
		a.w.Errorf("the abandon overtook a try: %v, %v", a.withdrawn, a.err)
	default:
	}
}

// returns waits for the answer and expects that there was a grant, which is gone.
func (a *abandoning) returns() {
	a.w.Helper()
	<-a.done
	if a.err != nil || !a.withdrawn {
		a.w.Errorf("abandon: %v, %v; want true", a.withdrawn, a.err)
	}
	a.w.release(a.w.hold())
}

// A try in flight can still grant, whether or not its call has a place in line: an abandon comes after it.
func TestAnAbandonWaitsForEveryTry(t *testing.T) {
	t.Parallel()
	t.Run("of a call without a place", func(t *testing.T) {
		bubble(t, service.Config{}, func(w *world) {
			for _, wait := range []time.Duration{0, time.Hour} {
				gate := make(chan struct{})
				w.store.once("TryInsert", fault{hold: gate})
				p := w.start(w.request(w.session(), wait))
				a := w.abandon(p.req)
				a.waits()
				close(gate)
				a.returns()
				p.grant() // of what was there when it was answered
			}
		})
	})
	t.Run("of a call that lost its place to a retry", func(t *testing.T) {
		bubble(t, service.Config{}, func(w *world) {
			g := w.hold()
			p := w.wait()
			gate := make(chan struct{})
			w.store.once("TryInsert", fault{hold: gate})
			if _, err := w.store.DeleteIfOwner(w.Context(), g.Key, g.Session, g.Token); err != nil { // elsewhere: it tries
				w.Fatal(err)
			}
			synctest.Wait()
			retry := w.start(p.req)
			w.release(retry.grant())
			a := w.abandon(p.req)
			a.waits()
			close(gate)
			a.returns()
			p.cancel()
			<-p.done
		})
	})
}

// A call that was abandoned before it came to stand in line does not stand there.
func TestAnAbandonedCallTakesNoPlace(t *testing.T) {
	t.Parallel()
	for name, others := range map[string]bool{"its try found the key held": false, "others were in line": true} {
		t.Run(name, func(t *testing.T) {
			bubble(t, service.Config{}, func(w *world) {
				g := w.hold()
				op, behind := "TryInsert", (*pending)(nil)
				if others {
					op, behind = "Settle", w.wait()
				}
				gate := make(chan struct{})
				w.store.once(op, fault{hold: gate})
				p := w.start(w.request(w.session(), time.Hour))
				a := w.abandon(p.req)
				a.waits()
				close(gate)
				<-a.done
				if a.err != nil || a.withdrawn || !p.ended() {
					w.Errorf("abandoned: %v, %v; the call has ended: %v", a.withdrawn, a.err, p.ended())
				}
				p.cancel()
				w.release(g)
				if behind != nil {
					w.release(behind.grant())
				}
			})
		})
	}
}
