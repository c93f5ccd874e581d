package service_test

import (
	"context"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/fencelock/fencelock/core/lock"
	"github.com/fencelock/fencelock/core/port"
)

// fault is what happens to one call of the fake store.
type fault struct {
	// hold delays the call until the channel is closed.
	hold <-chan struct{}
	// delay is how long the call takes before its effect.
	delay time.Duration
	// lost: the call has no effect. late: it has its effect that much later, after the answer.
	lost bool
	late time.Duration
	// err is the answer instead of the true one.
	err error
}

var (
	errDown     = lock.Contention("down", false, nil)
	errUnknown  = lock.Contention("no answer", true, nil)
	answerLost  = fault{err: errUnknown}             // carried out, answer lost
	requestLost = fault{err: errUnknown, lost: true} // not carried out, which nobody knows
	refused     = fault{err: errDown, lost: true}
)

// change is one entry of the store's own history.
type change struct {
	key     lock.Key
	session lock.SessionID
	id      lock.RequestID
	token   lock.Token
	began   bool // a grant began; else it ended
}

type liveSession struct {
	lock.Session
	until time.Time
}

// store is a small fake of all ports, with faults per call.
type store struct {
	// plan decides the fault of a call; nil means none. Set before use or under mu.
	mu       sync.Mutex
	plan     func(op string, key lock.Key) fault
	token    lock.Token
	floor    map[lock.Key]lock.Token
	grants   map[lock.Key]lock.Grant
	sessions map[lock.SessionID]*liveSession
	wakes    map[*wake]struct{}
	subs     map[*subscription]struct{}
	history  []change
	calls    map[string]int
	deaf     bool // no wakes, no news
	gaps     int  // how often the last registration was cancelled
}

func newStore() *store {
	return &store{
		floor:    map[lock.Key]lock.Token{},
		grants:   map[lock.Key]lock.Grant{},
		sessions: map[lock.SessionID]*liveSession{},
		wakes:    map[*wake]struct{}{},
		subs:     map[*subscription]struct{}{},
		calls:    map[string]int{},
	}
}

func (s *store) backend() port.Backend {
	return port.Backend{Locks: s, Sessions: s, Waiter: s, Handover: s, Catalog: s, Feed: s, Custodian: s}
}

// do makes one call with its fault.
func (s *store) do(ctx context.Context, op string, key lock.Key, effect func() error) error {
	s.mu.Lock()
	s.calls[op]++
	var f fault
	if s.plan != nil {
		f = s.plan(op, key)
	}
	s.mu.Unlock()
	if f.hold != nil {
		select {
		case <-f.hold:
		case <-ctx.Done():
			if f.err != nil {
				return f.err
			}
			return lock.Contention("held up", true, ctx.Err())
		}
	}
	if f.delay > 0 {
		timer := time.NewTimer(f.delay)
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-ctx.Done():
			return lock.Contention("too slow", true, ctx.Err())
		}
	}
	if f.late > 0 {
		time.AfterFunc(f.late, func() { _ = s.locked(effect) })
		return errUnknown
	}
	var err error
	if !f.lost {
		err = s.locked(effect)
	}
	if f.err != nil {
		return f.err
	}
	return err
}

func (s *store) locked(effect func() error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return effect()
}

// faults installs a plan.
func (s *store) faults(plan func(op string, key lock.Key) fault) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.plan = plan
}

// silence turns wakes and news off or on.
func (s *store) silence(deaf bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.deaf = deaf
}

// interrupted reports whether there was a moment without any registration.
func (s *store) interrupted() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.gaps > 0
}

// once makes the next call of op suffer f.
func (s *store) once(op string, f fault) {
	done := false
	s.faults(func(called string, _ lock.Key) fault {
		if called == op && !done {
			done = true
			return f
		}
		return fault{}
	})
}

func (s *store) count(op string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.calls[op]
}

func (s *store) live(id lock.SessionID) *liveSession {
	if l := s.sessions[id]; l != nil && time.Now().Before(l.until) {
		return l
	}
	return nil
}

// current is the live grant of a key.
func (s *store) current(key lock.Key) (lock.Grant, bool) {
	g, ok := s.grants[key]
	if ok && s.live(g.Session) == nil {
		s.drop(g)
		return lock.Grant{}, false
	}
	return g, ok
}

func (s *store) drop(g lock.Grant) {
	delete(s.grants, g.Key)
	s.history = append(s.history, change{g.Key, g.Session, g.RequestID, g.Token, false})
	if s.deaf {
		return
	}
	for w := range s.wakes {
		if w.key == g.Key {
			w.fire()
		}
	}
}

func (s *store) put(req port.GrantRequest) lock.Grant {
	s.token++
	g := lock.Grant{
		Key: req.Key, Session: req.Session, Owner: s.sessions[req.Session].Owner, Token: s.token,
		RequestID: req.RequestID, AcquiredAt: time.Now(), Lease: req.Lease, LeaseRemaining: req.Lease,
	}
	s.grants[req.Key] = g
	s.history = append(s.history, change{g.Key, g.Session, g.RequestID, g.Token, true})
	return g
}

func (s *store) TryInsert(ctx context.Context, req port.GrantRequest) (a port.Attempt, err error) {
	err = s.do(ctx, "TryInsert", req.Key, func() error {
		if s.live(req.Session) == nil {
			return lock.ErrSessionDead
		}
		if g, held := s.current(req.Key); held {
			if g.Session == req.Session && g.RequestID == req.RequestID {
				a = port.Attempt{Granted: true, Grant: g}
				return nil
			}
			a.Holder = lock.Holder{Owner: g.Owner, Session: g.Session, Token: g.Token, AcquiredAt: g.AcquiredAt}
			if s.deaf {
				return nil
			}
			a.Holder.FreeWithin = time.Until(s.sessions[g.Session].until)
			return nil
		}
		a = port.Attempt{Granted: true, Grant: s.put(req)}
		return nil
	})
	return a, err
}

func (s *store) Extend(
	ctx context.Context, key lock.Key, session lock.SessionID, token lock.Token, lease time.Duration,
) (g lock.Grant, err error) {
	err = s.do(ctx, "Extend", key, func() error {
		var held bool
		if g, held = s.current(key); !held || g.Session != session || g.Token != token {
			return lock.ErrLost
		}
		if lease > 0 && g.Lease > 0 {
			g.Lease, g.LeaseRemaining = lease, lease
			s.grants[key] = g
		}
		return nil
	})
	return g, err
}

func (s *store) DeleteIfOwner(ctx context.Context, key lock.Key, session lock.SessionID, token lock.Token) (ok bool, err error) {
	err = s.do(ctx, "DeleteIfOwner", key, func() error {
		if g, held := s.current(key); held && g.Session == session && g.Token == token {
			s.drop(g)
			ok = true
		}
		return nil
	})
	return ok && err == nil, err
}

func (s *store) Read(ctx context.Context, key lock.Key) (info lock.Info, err error) {
	err = s.do(ctx, "Read", key, func() error {
		g, held := s.current(key)
		info = lock.Info{Key: key, Held: held, Grant: g, Floor: s.floor[key]}
		return nil
	})
	return info, err
}

func (s *store) Revoke(ctx context.Context, req port.RevokeRequest) (r lock.Revocation, err error) {
	err = s.do(ctx, "Revoke", req.Key, func() error {
		g, held := s.current(req.Key)
		if !held || req.Expected != 0 && req.Expected != g.Token {
			return lock.ErrLost
		}
		s.token++
		s.floor[req.Key] = s.token
		s.drop(g)
		r = lock.Revocation{Key: g.Key, PreviousSession: g.Session, PreviousToken: g.Token, PreviousOwner: g.Owner, Floor: s.token}
		s.tell(port.FeedEvent{Kind: port.GrantRevoked, Key: g.Key, Session: g.Session, Token: g.Token})
		return nil
	})
	return r, err
}

func (s *store) ReapExpired(context.Context) (int, error) { return 0, nil }

func (s *store) BackendID() string { return "fake" }

func (s *store) Handoff(ctx context.Context, from port.GrantRef, to port.GrantRequest) (g lock.Grant, err error) {
	err = s.do(ctx, "Handoff", from.Key, func() error {
		old, held := s.current(from.Key)
		if !held || old.Session != from.Session || old.Token != from.Token {
			return lock.ErrLost
		}
		if s.live(to.Session) == nil {
			return lock.ErrSessionDead
		}
		s.drop(old)
		g = s.put(to)
		return nil
	})
	return g, err
}

func (s *store) Settle(
	ctx context.Context, key lock.Key, session lock.SessionID, id lock.RequestID,
) (g lock.Grant, ok bool, err error) {
	err = s.do(ctx, "Settle", key, func() error {
		if s.live(session) == nil {
			return lock.ErrSessionDead
		}
		g, ok = s.current(key)
		ok = ok && g.Session == session && g.RequestID == id
		return nil
	})
	return g, ok && err == nil, err
}

func (s *store) Abandon(ctx context.Context, key lock.Key, session lock.SessionID, id lock.RequestID) (ok bool, err error) {
	err = s.do(ctx, "Abandon", key, func() error {
		if g, held := s.current(key); held && g.Session == session && g.RequestID == id {
			s.drop(g)
			ok = true
		}
		return nil
	})
	return ok && err == nil, err
}

func (s *store) OpenSession(ctx context.Context, req port.OpenRequest) (out lock.Session, err error) {
	err = s.do(ctx, "OpenSession", lock.Key{}, func() error {
		out = lock.Session{ID: lock.NewSessionID(), Owner: req.Owner, TTL: req.TTL}
		s.sessions[out.ID] = &liveSession{Session: out, until: time.Now().Add(req.TTL)}
		return nil
	})
	return out, err
}

func (s *store) Heartbeat(ctx context.Context, id lock.SessionID) (v port.Vitals, err error) {
	err = s.do(ctx, "Heartbeat", lock.Key{}, func() error {
		l := s.live(id)
		if l == nil {
			return lock.ErrSessionDead
		}
		l.until = time.Now().Add(l.TTL)
		v = port.Vitals{Remaining: l.TTL, TTL: l.TTL}
		return nil
	})
	return v, err
}

func (s *store) CloseSession(ctx context.Context, id lock.SessionID) (n int, err error) {
	err = s.do(ctx, "CloseSession", lock.Key{}, func() error {
		n = s.kill(id)
		return nil
	})
	return n, err
}

// kill ends a session. The lock is held.
func (s *store) kill(id lock.SessionID) (ended int) {
	if s.live(id) == nil {
		return 0
	}
	delete(s.sessions, id)
	for _, g := range s.grants {
		if g.Session == id {
			s.drop(g)
			ended++
		}
	}
	s.tell(port.FeedEvent{Kind: port.SessionOver, Session: id})
	return ended
}

func (s *store) LocksOf(ctx context.Context, id lock.SessionID) (held []lock.Grant, err error) {
	err = s.do(ctx, "LocksOf", lock.Key{}, func() error {
		if s.live(id) == nil {
			return lock.ErrSessionDead
		}
		for _, g := range s.grants {
			if g.Session == id {
				held = append(held, g)
			}
		}
		slices.SortFunc(held, func(a, b lock.Grant) int { return strings.Compare(a.Key.String(), b.Key.String()) })
		return nil
	})
	return held, err
}

func (s *store) Grants(context.Context, string, string, port.Page) ([]lock.Grant, string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Collect(maps.Values(s.grants)), "", nil
}

func (s *store) Sessions(_ context.Context, page port.Page) (out []lock.Session, next string, err error) {
	return make([]lock.Session, page.Size), "more", nil
}

func (s *store) Revocations(context.Context, string, port.Page) ([]lock.Revocation, string, error) {
	return nil, "", lock.Invalid("page_token", "is not from this listing")
}

func (s *store) Counts(context.Context) (port.Counts, error) {
	return port.Counts{Grants: len(s.grants), Sessions: len(s.sessions)}, nil
}

func (s *store) Ping(ctx context.Context) error {
	return s.do(ctx, "Ping", lock.Key{}, func() error { return nil })
}

func (s *store) RaiseFloor(ctx context.Context, req port.FloorRequest) (r port.FloorRaised, err error) {
	err = s.do(ctx, "RaiseFloor", lock.Key{}, func() error {
		s.token = max(s.token, req.Above)
		for _, g := range s.grants {
			s.drop(g)
			r.EndedGrants++
		}
		r.Floor = s.token
		return nil
	})
	return r, err
}

// wake is one registration.
type wake struct {
	store *store
	key   lock.Key
	fired chan struct{}
}

func (s *store) Register(key lock.Key, _ lock.Token) port.Wake {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.calls["Register"]++
	w := &wake{store: s, key: key, fired: make(chan struct{}, 1)}
	s.wakes[w] = struct{}{}
	return w
}

func (w *wake) Fired() <-chan struct{} { return w.fired }

func (w *wake) Cancel() {
	w.store.mu.Lock()
	defer w.store.mu.Unlock()
	if _, there := w.store.wakes[w]; there && len(w.store.wakes) == 1 {
		w.store.gaps++
	}
	delete(w.store.wakes, w)
}

func (w *wake) fire() {
	select {
	case w.fired <- struct{}{}:
	default:
	}
}

// subscription is one subscription of the feed.
type subscription struct {
	store  *store
	events chan port.FeedEvent
	once   sync.Once
}

func (s *store) Subscribe() port.Subscription {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.calls["Subscribe"]++
	sub := &subscription{store: s, events: make(chan port.FeedEvent, 4096)}
	sub.events <- port.FeedEvent{Kind: port.Resync}
	s.subs[sub] = struct{}{}
	return sub
}

func (s *subscription) Events() <-chan port.FeedEvent { return s.events }

func (s *subscription) Close() {
	s.store.mu.Lock()
	defer s.store.mu.Unlock()
	delete(s.store.subs, s)
	s.once.Do(func() { close(s.events) })
}

// tell sends to all subscribers. The lock is held.
func (s *store) tell(ev port.FeedEvent) {
	if s.deaf {
		return
	}
	for sub := range s.subs {
		sub.events <- ev
	}
}
