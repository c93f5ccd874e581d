package parity_test

import (
	"context"
	"sync"
	"time"

	"github.com/fencelock/fencelock/contracts/parity"
	"github.com/fencelock/fencelock/core/lock"
	"github.com/fencelock/fencelock/core/port"
)

// wrappedBugs are planted between a sound store and the service, for clauses
// whose breach is not the store's.
func wrappedBugs() []planted {
	return []planted{
		{"held is answered late", "WAIT-01", wrapped(func(b *port.Backend) { b.Locks = slowHeld{b.Locks} })},
		{"no second try before the wait", "WAIT-02", wrapped(func(b *port.Backend) {
			b.Locks = &oneTry{LockStore: b.Locks, first: map[lock.RequestID]port.Attempt{}, spent: map[lock.RequestID]bool{}}
		})},
		{"the first in line is passed over", "WAIT-04", wrapped(func(b *port.Backend) {
			b.Handover = &passesOver{Handover: b.Handover}
		})},
	}
}

// wrapped is the reference's harness with something between it and whoever calls.
func wrapped(wrap func(b *port.Backend)) parity.Harness {
	sound := referenceHarness()
	return parity.Harness{New: func(t parity.T) parity.Fixture {
		f := sound.New(t)
		wrap(&f.First)
		wrap(&f.Second)
		return f
	}}
}

// slowHeld takes its time to say held, whatever the context says.
type slowHeld struct{ port.LockStore }

func (s slowHeld) TryInsert(ctx context.Context, req port.GrantRequest) (port.Attempt, error) {
	a, err := s.LockStore.TryInsert(ctx, req)
	if err == nil && !a.Granted {
		<-time.After(8 * time.Second)
	}
	return a, err
}

// oneTry answers the second try of a request like the first, without asking
// the store: what a waiter gets that does not try again once it has registered.
type oneTry struct {
	port.LockStore
	mu    sync.Mutex
	first map[lock.RequestID]port.Attempt
	spent map[lock.RequestID]bool
}

func (o *oneTry) TryInsert(ctx context.Context, req port.GrantRequest) (port.Attempt, error) {
	o.mu.Lock()
	a, again := o.first[req.RequestID]
	again = again && !o.spent[req.RequestID]
	o.spent[req.RequestID] = o.spent[req.RequestID] || again
	o.mu.Unlock()
	if again {
		return a, nil
	}
	a, err := o.LockStore.TryInsert(ctx, req)
	if err == nil && !a.Granted {
		o.mu.Lock()
		defer o.mu.Unlock()
		if _, known := o.first[req.RequestID]; !known {
			o.first[req.RequestID] = a
		}
	}
	return a, err
}

// passesOver takes the first session that a grant is handed to for dead.
type passesOver struct {
	port.Handover
	once sync.Once
}

func (p *passesOver) Handoff(ctx context.Context, from port.GrantRef, to port.GrantRequest) (lock.Grant, error) {
	err := error(nil)
	p.once.Do(func() { err = lock.ErrSessionDead })
	if err != nil {
		return lock.Grant{}, err
	}
	return p.Handover.Handoff(ctx, from, to)
}
