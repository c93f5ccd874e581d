package reference

import (
	"errors"
	"time"

	"github.com/fencelock/fencelock/core/lock"
	"github.com/fencelock/fencelock/core/port"
)

func leaseMutants() []Mutant {
	return []Mutant{
		{"extend moves the end earlier", "LOCK-07", func(w *World) {
			right := w.steps.extend
			w.steps.extend = func(now time.Time, ref port.GrantRef, lease time.Duration) (lock.Grant, error) {
				view, err := right(now, ref, lease)
				if g := w.grants[ref.Key]; err == nil && g.Lease > 0 && lease > 0 {
					g.end = now.Add(lease)
					w.expect(g.end)
					view = g.view(now)
				}
				return view, err
			}
		}},
		{"extend gives a lease to a grant without one", "LOCK-07", func(w *World) {
			right := w.steps.extend
			w.steps.extend = func(now time.Time, ref port.GrantRef, lease time.Duration) (lock.Grant, error) {
				view, err := right(now, ref, lease)
				if g := w.grants[ref.Key]; err == nil && g.Lease == 0 {
					g.Lease = max(lease, lock.MinTTL)
					g.end = now.Add(g.Lease)
					w.expect(g.end)
					view = g.view(now)
				}
				return view, err
			}
		}},
		{"extend of a grant that is over succeeds", "LOCK-07", func(w *World) {
			right := w.steps.extend
			w.steps.extend = func(now time.Time, ref port.GrantRef, lease time.Duration) (lock.Grant, error) {
				view, err := right(now, ref, lease)
				if errors.Is(err, lock.ErrLost) {
					return lock.Grant{Key: ref.Key, Session: ref.Session, Token: ref.Token}, nil
				}
				return view, err
			}
		}},
		{"a lapsed grant still blocks", "LOCK-08", func(w *World) {
			w.steps.leaseOver = func(*grant, time.Time) bool { return false }
		}},
		{"a lapsed holder may extend", "LOCK-08", func(w *World) {
			lapsed := rememberLapsed(w)
			right := w.steps.extend
			w.steps.extend = func(now time.Time, ref port.GrantRef, lease time.Duration) (lock.Grant, error) {
				if g := lapsed[ref]; g != nil {
					g.end = now.Add(max(lease, g.Lease))
					return g.view(now), nil
				}
				return right(now, ref, lease)
			}
		}},
		{"a lapsed holder may release", "LOCK-08", func(w *World) {
			lapsed := rememberLapsed(w)
			right := w.steps.release
			w.steps.release = func(ref port.GrantRef) bool { return lapsed[ref] != nil || right(ref) }
		}},
	}
}

func handoffMutants() []Mutant {
	return []Mutant{
		{"handoff keeps the token", "LOCK-09", func(w *World) {
			right := w.steps.handoff
			w.steps.handoff = func(now time.Time, from port.GrantRef, to port.GrantRequest) (lock.Grant, error) {
				view, err := right(now, from, to)
				if err == nil {
					view.Token = from.Token
					w.grants[from.Key].Token = from.Token
				}
				return view, err
			}
		}},
		{"handoff frees the key first", "LOCK-09", func(w *World) {
			right := w.steps.handoff
			w.steps.handoff = func(now time.Time, from port.GrantRef, to port.GrantRequest) (lock.Grant, error) {
				view, err := right(now, from, to)
				if err != nil {
					w.steps.release(from)
				}
				return view, err
			}
		}},
		{"handoff to a dead session", "LOCK-09", func(w *World) {
			right := w.steps.handoff
			w.steps.handoff = func(now time.Time, from port.GrantRef, to port.GrantRequest) (lock.Grant, error) {
				if _, live := w.find(from); live {
					return w.insert(now, to).view(now), nil
				}
				return right(now, from, to)
			}
		}},
		{"handoff of a grant that is over", "LOCK-09", func(w *World) {
			right := w.steps.handoff
			w.steps.handoff = func(now time.Time, from port.GrantRef, to port.GrantRequest) (lock.Grant, error) {
				if _, held := w.grants[from.Key]; !held {
					return w.insert(now, to).view(now), nil
				}
				return right(now, from, to)
			}
		}},
	}
}

// rememberLapsed collects grants as their leases run out.
func rememberLapsed(w *World) map[port.GrantRef]*grant {
	lapsed := map[port.GrantRef]*grant{}
	over := w.steps.leaseOver
	w.steps.leaseOver = func(g *grant, now time.Time) bool {
		if !over(g, now) {
			return false
		}
		lapsed[port.GrantRef{Key: g.Key, Session: g.Session, Token: g.Token}] = g
		return true
	}
	return lapsed
}
