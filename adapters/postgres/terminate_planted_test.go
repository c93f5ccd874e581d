package postgres_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fencelock/fencelock/contracts/parity"
	"github.com/fencelock/fencelock/contracts/parity/trial"
	"github.com/fencelock/fencelock/core/lock"
	"github.com/fencelock/fencelock/core/port"
)

// TestLiesAboutEndedConnectionsAreFound is the control of [TestParityWhileBackendsAreTerminated]: nothing excuses a Store that takes
// a call which it could not carry out, or whose outcome it does not know, for one that was answered, or one that loses something
// with a connection.
func TestLiesAboutEndedConnectionsAreFound(t *testing.T) {
	t.Parallel()
	const (
		cycles = "token strictly increasing across acquire and release cycles"
		crowd  = "one of many revocations at once succeeds, with one record"
		feed   = "the feed of every server tells it"
	)
	locks := func(plant func(port.LockStore, *atomic.Int64) port.LockStore) func(*parity.Fixture, *atomic.Int64) {
		return func(f *parity.Fixture, told *atomic.Int64) {
			f.First.Locks, f.Second.Locks = plant(f.First.Locks, told), plant(f.Second.Locks, told)
		}
	}
	says := func(err error) func(*parity.Fixture, *atomic.Int64) {
		return locks(func(s port.LockStore, told *atomic.Int64) port.LockStore { return liar{s, told, err} })
	}
	for what, planted := range map[string]struct {
		clause, name string
		plant        func(*parity.Fixture, *atomic.Int64)
	}{
		"lost":           {"LOCK-02", cycles, says(lock.ErrLost)},
		"dead":           {"LOCK-02", cycles, says(lock.ErrSessionDead)},
		"held, or false": {"LOCK-02", cycles, says(nil)},
		"revoked": {"REV-01", crowd, locks(func(s port.LockStore, told *atomic.Int64) port.LockStore {
			return pretender{s, told}
		})},
		"a lost grant": {"LOCK-02", cycles, locks(func(s port.LockStore, told *atomic.Int64) port.LockStore {
			return &loser{LockStore: s, told: told}
		})},
		"no news": {"REV-03", feed, func(f *parity.Fixture, told *atomic.Int64) {
			f.First.Feed, f.Second.Feed = concealing{f.First.Feed, told}, concealing{f.Second.Feed, told}
		}},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			var executioner executioner
			s := newSite(t)
			for met := false; !met; { // until an ended connection was met, and no honest error broke the case off
				var told atomic.Int64
				harness := executioner.harness(s, 1, func(f *parity.Fixture) { planted.plant(f, &told) })
				o := trial.Run(t.Context(), harness, planted.clause, planted.name, excuse(planted.clause, planted.name))
				if met = told.Load() > 0 && o.Excused == nil; met && !o.Failed() {
					t.Errorf("%d times a Store said what it could not know, and that passes", told.Load())
				}
				t.Log(told.Load(), o)
			}
		})
	}
}

// liar is a store of grants that makes something else of what it cannot tell.
type liar struct {
	port.LockStore

	told *atomic.Int64
	// says is the error instead; nil says held, of an acquire, and false, of a release.
	says error
}

func (l liar) lies(err error) bool {
	if lock.IsRetryable(err) {
		l.told.Add(1)
		return true
	}
	return false
}

// TryInsert implements port.LockStore.
func (l liar) TryInsert(ctx context.Context, req port.GrantRequest) (port.Attempt, error) {
	a, err := l.LockStore.TryInsert(ctx, req)
	if l.lies(err) {
		return port.Attempt{Holder: lock.Holder{Token: 1}}, l.says
	}
	return a, err
}

// Extend implements port.LockStore.
func (l liar) Extend(
	ctx context.Context, key lock.Key, session lock.SessionID, token lock.Token, lease time.Duration,
) (lock.Grant, error) {
	g, err := l.LockStore.Extend(ctx, key, session, token, lease)
	if l.lies(err) {
		return lock.Grant{}, l.says
	}
	return g, err
}

// DeleteIfOwner implements port.LockStore.
func (l liar) DeleteIfOwner(ctx context.Context, key lock.Key, session lock.SessionID, token lock.Token) (bool, error) {
	ok, err := l.LockStore.DeleteIfOwner(ctx, key, session, token)
	if l.lies(err) {
		return false, l.says
	}
	return ok, err
}

// pretender is a store of grants that says that it has revoked what it has not.
type pretender struct {
	port.LockStore

	told *atomic.Int64
}

// Revoke implements port.LockStore.
func (p pretender) Revoke(ctx context.Context, req port.RevokeRequest) (lock.Revocation, error) {
	r, err := p.LockStore.Revoke(ctx, req)
	if lock.IsRetryable(err) {
		// Where the grant has ended it may be true.
		if info, err := p.Read(ctx, req.Key); err == nil && info.Held && info.Grant.Token == req.Expected {
			p.told.Add(1)
			return lock.Revocation{}, nil
		}
	}
	return r, err
}

// loser is a store of grants that forgets the first one after a connection was ended.
type loser struct {
	port.LockStore

	told   *atomic.Int64
	broken atomic.Bool
}

// TryInsert implements port.LockStore.
func (l *loser) TryInsert(ctx context.Context, req port.GrantRequest) (port.Attempt, error) {
	a, err := l.LockStore.TryInsert(ctx, req)
	if lock.IsRetryable(err) {
		l.broken.Store(true)
	}
	if a.Granted && l.broken.Swap(false) {
		if ok, _ := l.DeleteIfOwner(ctx, req.Key, req.Session, a.Grant.Token); ok {
			l.told.Add(1)
		}
	}
	return a, err
}

// concealing is a feed that does not tell of revocations.
type concealing struct {
	port.Feed

	told *atomic.Int64
}

// Subscribe implements port.Feed.
func (c concealing) Subscribe() port.Subscription {
	sub := c.Feed.Subscribe()
	events := make(chan port.FeedEvent)
	go func() { // ends with the subscription
		defer close(events)
		for e := range sub.Events() {
			if e.Kind == port.GrantRevoked {
				c.told.Add(1)
				continue
			}
			events <- e
		}
	}()
	return concealed{sub, events}
}

type concealed struct {
	port.Subscription

	events chan port.FeedEvent
}

// Events implements port.Subscription.
func (c concealed) Events() <-chan port.FeedEvent { return c.events }

// Close implements port.Subscription.
func (c concealed) Close() {
	c.Subscription.Close()
	for range c.events { // what nobody has read
	}
}
