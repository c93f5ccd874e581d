package etcd

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/fencelock/fencelock/core/lock"
)

// member is a session as this Store knows it. Only until ever changes.
type member struct {
	lease int64
	owner lock.Owner
	ttl   time.Duration
	// until is the reading of the clock, in nanoseconds, until which the store has
	// guaranteed the session; 0 means unknown.
	until atomic.Int64
}

func (m *member) remaining(now time.Duration) time.Duration {
	return time.Duration(m.until.Load()) - now
}

// guarantee raises until; a guarantee once given is never taken back.
func (m *member) guarantee(until time.Duration) {
	for {
		old := m.until.Load()
		if int64(until) <= old || m.until.CompareAndSwap(old, int64(until)) {
			return
		}
	}
}

// roster remembers sessions, so that a call needs one Txn. A session's lease never changes and
// every Txn compares it, so an entry can be useless but not wrong.
//
// Entries live in two generations: what was not used for a whole one is
// forgotten with it. So it needs no goroutine and no timer.
type roster struct {
	store *Store

	mu         sync.Mutex
	young, old map[lock.SessionID]*member
	born       time.Duration // of the young generation
}

// generation is longer than any session can live without being used here.
const generation = lock.MaxTTL + time.Minute

func newRoster(s *Store) *roster {
	return &roster{store: s, young: map[lock.SessionID]*member{}, born: s.now()}
}

// known returns what is remembered.
func (r *roster) known(id lock.SessionID) (*member, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.age()
	m, ok := r.young[id]
	if !ok {
		if m, ok = r.old[id]; ok {
			r.young[id] = m
		}
	}
	return m, ok
}

// add remembers a session and returns the entry that is kept.
func (r *roster) add(id lock.SessionID, m *member) *member {
	if kept, ok := r.known(id); ok {
		return kept
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if kept, ok := r.young[id]; ok {
		return kept
	}
	r.young[id] = m
	return m
}

func (r *roster) forget(id lock.SessionID) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.young, id)
	delete(r.old, id)
}

func (r *roster) age() {
	if now := r.store.now(); now-r.born > generation {
		r.young, r.old, r.born = map[lock.SessionID]*member{}, r.young, now
	}
}

// find returns the session, from memory or by a linearizable read, or [lock.ErrSessionDead].
// One from memory may have died; the Txn that uses it will tell.
func (r *roster) find(ctx context.Context, id lock.SessionID) (*member, error) {
	if m, ok := r.known(id); ok {
		return m, nil
	}
	return r.reread(ctx, id)
}

// reread asks the store whether the session lives.
func (r *roster) reread(ctx context.Context, id lock.SessionID) (*member, error) {
	resp, err := r.store.fetch(ctx, clientv3.OpGet(r.store.keys.session(id)))
	if err != nil {
		return nil, err
	}
	kvs := resp.Responses[0].GetResponseRange().GetKvs()
	if len(kvs) == 0 {
		r.forget(id)
		return nil, lock.ErrSessionDead
	}
	session, err := decodeSession(kvs[0])
	if err != nil {
		return nil, err
	}
	return r.add(id, &member{lease: kvs[0].GetLease(), owner: session.Owner, ttl: session.TTL}), nil
}

// alive holds in a Txn while the session lives.
func (s *Store) alive(id lock.SessionID, m *member) clientv3.Cmp {
	return clientv3.Compare(clientv3.LeaseValue(s.keys.session(id)), "=", m.lease)
}
