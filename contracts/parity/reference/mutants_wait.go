package reference

import (
	"context"
	"time"

	"github.com/fencelock/fencelock/core/lock"
	"github.com/fencelock/fencelock/core/port"
)

func waitMutants() []Mutant {
	return []Mutant{
		{"lost wake-up", "WAIT-02", func(w *World) {
			w.steps.register = func(c *Client, key lock.Key) *wake {
				r := w.register(c, key)
				r.fired = make(chan struct{}) // a signal is lost unless somebody receives at that instant
				return r
			}
		}},
		{"release wakes nobody", "WAIT-02", func(w *World) {
			right := w.steps.release
			w.steps.release = func(ref port.GrantRef) (released bool) {
				silently(w, func() { released = right(ref) })
				return released
			}
		}},
		{"revocation wakes nobody", "WAIT-02", func(w *World) {
			right := w.steps.revoke
			w.steps.revoke = func(now time.Time, req port.RevokeRequest) (r lock.Revocation, err error) {
				silently(w, func() { r, err = right(now, req) })
				return r, err
			}
		}},
		{"death wakes nobody", "WAIT-02", func(w *World) {
			right := w.steps.endSession
			w.steps.endSession = func(s *session) { silently(w, func() { right(s) }) }
		}},
		{"lapse wakes nobody", "WAIT-02", func(w *World) {
			try := w.steps.tryInsert
			w.steps.tryInsert = func(now time.Time, req port.GrantRequest) (port.Attempt, error) {
				a, err := try(now, req)
				a.Holder.FreeWithin = 0 // or else a waiter knows when to look
				return a, err
			}
			right := w.steps.leaseOver
			w.steps.leaseOver = func(g *grant, now time.Time) bool {
				if !right(g, now) {
					return false
				}
				for r := range w.wakes {
					if r.key == g.Key {
						delete(w.wakes, r)
					}
				}
				return true
			}
		}},
		{"extension wakes", "WAIT-03", func(w *World) {
			right := w.steps.extend
			w.steps.extend = func(now time.Time, ref port.GrantRef, lease time.Duration) (lock.Grant, error) {
				w.steps.wake(ref.Key)
				return right(now, ref, lease)
			}
		}},
		{"unrelated write wakes", "WAIT-03", func(w *World) {
			right := w.steps.wake
			w.steps.wake = func(lock.Key) {
				for r := range w.wakes {
					right(r.key)
				}
			}
		}},
		{"waiter leak", "WAIT-05", func(w *World) { w.steps.cancel = func(*wake) {} }},
	}
}

// silently runs a step that wakes nobody.
func silently(w *World, step func()) {
	wake := w.steps.wake
	w.steps.wake = func(lock.Key) {}
	step()
	w.steps.wake = wake
}

func failureMutants() []Mutant {
	return []Mutant{
		{"blip reported as lost", "FAIL-01", func(w *World) {
			w.steps.unreachable = func() error { return lock.ErrLost }
		}},
		{"blip reported as dead session", "FAIL-01", func(w *World) {
			w.steps.unreachable = func() error { return lock.ErrSessionDead }
		}},
		{"blip reported as held", "FAIL-01", func(w *World) {
			w.steps.unreachable = func() error { return lock.ErrHeld }
		}},
		{"lost answer reported as not carried out", "FAIL-01", func(w *World) {
			w.steps.answerLost = func(cause error) error { return lock.Contention("the call failed", false, cause) }
		}},
		{"lost answer reported as lost grant", "FAIL-01", func(w *World) {
			w.steps.answerLost = func(error) error { return lock.ErrLost }
		}},
		{"fails open", "FAIL-02", func(w *World) {
			w.steps.backend = func(c *Client) port.Backend {
				b := c.backend()
				b.Locks = failOpen{b.Locks}
				return b
			}
		}},
		{"no service after the fault has healed", "FAIL-03", func(w *World) {
			w.steps.heal = func(*Client) {}
		}},
	}
}

// failOpen grants when it cannot ask.
type failOpen struct{ port.LockStore }

// TryInsert implements [port.LockStore], wrongly.
func (f failOpen) TryInsert(ctx context.Context, req port.GrantRequest) (port.Attempt, error) {
	a, err := f.LockStore.TryInsert(ctx, req)
	if !lock.IsRetryable(err) {
		return a, err
	}
	return port.Attempt{Granted: true, Grant: lock.Grant{
		Key: req.Key, Session: req.Session, RequestID: req.RequestID, Token: 1,
	}}, nil
}
