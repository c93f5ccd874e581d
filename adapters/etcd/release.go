package etcd

import (
	"context"
	"errors"

	"github.com/fencelock/fencelock/core/lock"
)

// DeleteIfOwner implements port.LockStore: one Txn, without a look before it.
func (s *Store) DeleteIfOwner(ctx context.Context, key lock.Key, session lock.SessionID, token lock.Token) (bool, error) {
	m, err := s.members.find(ctx, session)
	if err != nil {
		return false, unlessDead(err)
	}
	e := *s.epoch.Load()
	for range maxRounds {
		out, err := s.change(ctx, change{
			key: key, epoch: e, rev: int64(token) - e.base, lease: m.lease, ops: s.dropOps(key),
		})
		switch {
		case err != nil:
			return false, err
		case out.done:
			s.waiters.vigil.expect(out.rev, s.now())
			s.sweeper.discard(out.freed)
			return true, nil
		case out.view.epoch == e:
			return false, nil
		}
		e = out.view.epoch
	}
	return false, errCrowded()
}

// unlessDead drops the error of a dead session: what it held is over, and that is no error.
func unlessDead(err error) error {
	if errors.Is(err, lock.ErrSessionDead) {
		return nil
	}
	return err
}

// Abandon implements port.Handover.
func (s *Store) Abandon(ctx context.Context, key lock.Key, session lock.SessionID, id lock.RequestID) (bool, error) {
	v, err := s.look(ctx, key, session)
	if err != nil {
		return false, err
	}
	for range maxRounds {
		if !v.named(session, id) {
			return false, nil
		}
		out, err := s.change(ctx, v.change(session, s.dropOps(key)))
		switch {
		case err != nil:
			return false, err
		case out.done:
			s.sweeper.discard(out.freed)
			return true, nil
		}
		v = out.view
	}
	return false, errCrowded()
}

// Settle implements port.Handover.
func (s *Store) Settle(ctx context.Context, key lock.Key, session lock.SessionID, id lock.RequestID) (lock.Grant, bool, error) {
	v, err := s.look(ctx, key, session)
	switch {
	case err != nil:
		return lock.Grant{}, false, err
	case v.session == 0:
		s.members.forget(session)
		return lock.Grant{}, false, lock.ErrSessionDead
	case !v.named(session, id):
		return lock.Grant{}, false, nil
	}
	g, live, err := s.withRemaining(ctx, v)
	if err != nil || !live {
		return lock.Grant{}, false, err
	}
	return g, true, nil
}
