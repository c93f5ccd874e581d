package service

import (
	"context"
	"sync"
	"time"

	"github.com/fencelock/fencelock/core/lock"
	"github.com/fencelock/fencelock/core/port"
)

// lookEvery is the upper end of the jittered poll of a watched key.
const lookEvery = time.Second

// Inspect returns a plausible picture of one key, never usable for a decision
// (clause LOCK-10).
func (s *Service) Inspect(ctx context.Context, key lock.Key) (Inspection, error) {
	defer s.flight.enter()()
	if err := checkKey(key); err != nil {
		return Inspection{}, err
	}
	return s.inspect(ctx, key)
}

func (s *Service) inspect(ctx context.Context, key lock.Key) (Inspection, error) {
	info, err := s.read(ctx, key)
	if err != nil {
		return Inspection{}, err
	}
	waiters, _ := s.lines.front(key)
	return Inspection{Info: info, Waiters: waiters}, nil
}

// WatchLock sends the picture of a key now and after each change: another holder,
// another floor, another number of waiters on this server. Changes in quick succession may be sent
// as one. It returns the error of send, or a retryable [lock.ErrContention] when ctx ends
// (its error is the cause) or the server drains. Once a picture was sent, a store that
// cannot be asked only delays the next.
func (s *Service) WatchLock(ctx context.Context, key lock.Key, send func(Inspection) error) error {
	if err := checkKey(key); err != nil {
		return err
	}
	bell, silence := s.bells.hang(key)
	defer silence()
	var wake port.Wake
	defer func() { wake.Cancel() }()
	var last *Inspection
	for {
		var observed lock.Token
		if last != nil {
			observed = last.Grant.Token
		}
		next := s.backend.Waiter.Register(key, observed)
		if wake != nil {
			wake.Cancel()
		}
		wake = next
		now, err := s.inspect(ctx, key)
		switch {
		case err == nil && (last == nil || differ(*last, now)):
			if err := send(now); err != nil {
				return err
			}
			last = &now
		case err != nil && (last == nil || !lock.IsRetryable(err)):
			return err
		}
		if err := s.doze(ctx, bell, wake.Fired()); err != nil {
			return err
		}
	}
}

// doze sleeps until a watched key may have changed.
func (s *Service) doze(ctx context.Context, bell, fired <-chan struct{}) error {
	timer := time.NewTimer(between(lookEvery/2, lookEvery))
	defer timer.Stop()
	select {
	case <-bell:
	case <-fired:
	case <-timer.C:
	case <-ctx.Done():
		return errLeft(ctx, false)
	case <-s.flight.stopping:
		return errDraining(false)
	}
	return nil
}

func differ(a, b Inspection) bool {
	return a.Held != b.Held || a.Grant.Token != b.Grant.Token || a.Floor != b.Floor || a.Waiters != b.Waiters
}

// ListLocks lists live grants of a namespace whose key has the prefix, by key.
func (s *Service) ListLocks(ctx context.Context, namespace, prefix string, page port.Page) ([]lock.Grant, string, error) {
	defer s.flight.enter()()
	namespace, err := lock.NewNamespace(namespace)
	if err != nil {
		return nil, "", err
	}
	if prefix, err = lock.NewKeyPrefix(prefix); err != nil {
		return nil, "", err
	}
	return readPage(ctx, s, page, func(ctx context.Context, page port.Page) ([]lock.Grant, string, error) {
		return s.backend.Catalog.Grants(ctx, namespace, prefix, page)
	})
}

// ListSessions lists live sessions.
func (s *Service) ListSessions(ctx context.Context, page port.Page) ([]lock.Session, string, error) {
	defer s.flight.enter()()
	return readPage(ctx, s, page, s.backend.Catalog.Sessions)
}

// ListRevocations lists the audit records of a namespace, newest first.
func (s *Service) ListRevocations(ctx context.Context, namespace string, page port.Page) ([]lock.Revocation, string, error) {
	defer s.flight.enter()()
	namespace, err := lock.NewNamespace(namespace)
	if err != nil {
		return nil, "", err
	}
	return readPage(ctx, s, page, func(ctx context.Context, page port.Page) ([]lock.Revocation, string, error) {
		return s.backend.Catalog.Revocations(ctx, namespace, page)
	})
}

// readPage reads one page.
func readPage[T any](
	ctx context.Context, s *Service, page port.Page, read func(context.Context, port.Page) ([]T, string, error),
) (items []T, next string, err error) {
	if page, err = checkPage(page); err != nil {
		return nil, "", err
	}
	items, err = ask(ctx, s, func(ctx context.Context) (found []T, err error) {
		found, next, err = read(ctx, page)
		return found, err
	})
	return items, next, err
}

// Counts returns totals over the whole store.
func (s *Service) Counts(ctx context.Context) (port.Counts, error) {
	return ask(ctx, s, s.backend.Catalog.Counts)
}

// bells ring for those who watch a key when this server changes it.
type bells struct {
	mu    sync.Mutex
	byKey map[lock.Key]map[chan struct{}]struct{}
}

func newBells() *bells { return &bells{byKey: map[lock.Key]map[chan struct{}]struct{}{}} }

// hang returns a bell for the key, with at most one pending ring, and its end.
func (b *bells) hang(key lock.Key) (bell <-chan struct{}, silence func()) {
	b.mu.Lock()
	defer b.mu.Unlock()
	rung := make(chan struct{}, 1)
	if b.byKey[key] == nil {
		b.byKey[key] = map[chan struct{}]struct{}{}
	}
	b.byKey[key][rung] = struct{}{}
	return rung, func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		delete(b.byKey[key], rung)
		if len(b.byKey[key]) == 0 {
			delete(b.byKey, key)
		}
	}
}

func (b *bells) ring(key lock.Key) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for rung := range b.byKey[key] {
		select {
		case rung <- struct{}{}:
		default:
		}
	}
}
