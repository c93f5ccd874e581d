package reference

import (
	"slices"
	"time"

	"github.com/fencelock/fencelock/core/lock"
	"github.com/fencelock/fencelock/core/port"
)

func operatorMutants() []Mutant {
	return []Mutant{
		{"floor not above the condemned token", "REV-01", func(w *World) {
			right := w.steps.revoke
			w.steps.revoke = func(now time.Time, req port.RevokeRequest) (lock.Revocation, error) {
				r, err := right(now, req)
				if err == nil {
					r.Floor = r.PreviousToken
					w.floors[req.Key] = r.Floor
				}
				return r, err
			}
		}},
		{"token not above the floor", "REV-01", func(w *World) {
			right := w.steps.tryInsert
			w.steps.tryInsert = func(now time.Time, req port.GrantRequest) (port.Attempt, error) {
				_, held := w.grants[req.Key]
				a, err := right(now, req)
				if floor := w.floors[req.Key]; a.Granted && !held && floor != 0 {
					a.Grant.Token = floor
					w.grants[req.Key].Token = floor
				}
				return a, err
			}
		}},
		{"revoke leaves the grant", "REV-01", func(w *World) {
			right := w.steps.revoke
			w.steps.revoke = func(now time.Time, req port.RevokeRequest) (lock.Revocation, error) {
				g := w.grants[req.Key]
				r, err := right(now, req)
				if err == nil {
					w.grants[req.Key] = g
				}
				return r, err
			}
		}},
		{"compare-and-revoke ignores the token", "REV-02", func(w *World) {
			right := w.steps.revoke
			w.steps.revoke = func(now time.Time, req port.RevokeRequest) (lock.Revocation, error) {
				req.Expected = 0
				return right(now, req)
			}
		}},
		{"revoking a free key succeeds", "REV-02", func(w *World) {
			right := w.steps.revoke
			w.steps.revoke = func(now time.Time, req port.RevokeRequest) (lock.Revocation, error) {
				if _, held := w.grants[req.Key]; !held {
					return w.condemn(now, &grant{Grant: lock.Grant{Key: req.Key}}, req.Operator, req.Reason), nil
				}
				return right(now, req)
			}
		}},
		{"revocation tells nobody", "REV-03", func(w *World) {
			right := w.steps.tell
			w.steps.tell = func(e port.FeedEvent) {
				if e.Kind != port.GrantRevoked {
					right(e)
				}
			}
		}},
	}
}

func auditMutants() []Mutant {
	return []Mutant{
		{"revocation without audit record", "REV-04", func(w *World) {
			right := w.steps.revoke
			w.steps.revoke = func(now time.Time, req port.RevokeRequest) (lock.Revocation, error) {
				r, err := right(now, req)
				if err == nil {
					w.audit = w.audit[:len(w.audit)-1]
				}
				return r, err
			}
		}},
		{"a raised floor is listed nowhere", "REV-04", func(w *World) {
			right := w.steps.raiseFloor
			w.steps.raiseFloor = func(now time.Time, req port.FloorRequest) port.FloorRaised {
				raised := right(now, req)
				w.audit = w.audit[:len(w.audit)-1]
				return raised
			}
		}},
		{"a raised floor is listed in one namespace", "REV-04", func(w *World) {
			right := w.steps.listRevocations
			w.steps.listRevocations = func(namespace string) []lock.Revocation {
				revocations := right(namespace)
				if namespace == lock.DefaultNamespace {
					return revocations
				}
				return slices.DeleteFunc(revocations, func(r lock.Revocation) bool { return r.Key.IsZero() })
			}
		}},
		{"revocations listed oldest first", "REV-04", func(w *World) {
			right := w.steps.listRevocations
			w.steps.listRevocations = func(namespace string) []lock.Revocation {
				revocations := right(namespace)
				slices.Reverse(revocations)
				return revocations
			}
		}},
	}
}
