package client_test

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"slices"
	"sync"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	v1 "github.com/fencelock/fencelock/contracts/api/fencelock/v1"
	"github.com/fencelock/fencelock/core/lock"
)

// world is the store behind all nodes: the least that a client can tell from a
// real one. Its clock is that of the bubble plus what it slept.
type world struct {
	clock *testClock
	// busy counts the calls being served.
	busy sync.WaitGroup

	mu sync.Mutex
	// fault says what happens to a call; nil means nothing.
	fault func(c call) fault
	// defaultLease is for acquires that name none; 0 for none.
	defaultLease time.Duration

	sessions map[string]*session
	grants   map[string]*grant
	token    int64
	calls    []call
	changed  chan struct{} // closed and replaced whenever a key may have become free
	watchers map[chan *v1.SessionEvent]struct{}
}

type session struct {
	ttl  time.Duration
	dies time.Duration
}

type grant struct {
	session, requestID string
	token              int64
	ends               time.Duration // of the lease; 0 without one
}

// call is one request as it arrived.
type call struct {
	name      string
	n         int // counts calls of the name from 1
	at        time.Duration
	stream    bool
	requestID string
	digest    bool
	node      *node
}

// fault is what happens to one call.
type fault struct {
	requestTakes, answerTakes time.Duration
	requestLost, answerLost   bool
	err                       error
}

func newWorld() *world {
	return &world{
		clock: newClock(), sessions: map[string]*session{}, grants: map[string]*grant{},
		changed: make(chan struct{}), watchers: map[chan *v1.SessionEvent]struct{}{},
	}
}

// carry runs one call through its faults. do runs under the world's mutex once
// the request has arrived.
func (w *world) carry(ctx context.Context, c call, do func() error) error {
	w.busy.Add(1)
	defer w.busy.Done()
	w.mu.Lock()
	c.n = 1
	for _, other := range w.calls {
		if other.name == c.name {
			c.n++
		}
	}
	c.at = w.clock.Elapsed()
	w.calls = append(w.calls, c)
	decide := w.fault
	w.mu.Unlock()
	var f fault
	if decide != nil {
		f = decide(c)
	}
	if f.requestLost {
		<-ctx.Done()
		return ctx.Err()
	}
	// A request under way arrives, whether or not its sender still waits.
	rest(f.requestTakes)
	if f.err != nil {
		return f.err
	}
	w.mu.Lock()
	w.pass()
	err := do()
	w.mu.Unlock()
	rest(f.answerTakes)
	if f.answerLost {
		<-ctx.Done()
		return ctx.Err()
	}
	return err
}

// pass ends what is overdue. The caller holds mu.
func (w *world) pass() {
	now := w.clock.Elapsed()
	for id, s := range w.sessions {
		if now >= s.dies {
			w.kill(id)
		}
	}
	for key, g := range w.grants {
		if g.ends > 0 && now >= g.ends {
			delete(w.grants, key)
			w.wake()
		}
	}
}

func (w *world) kill(id string) (freed int) {
	delete(w.sessions, id)
	for key, g := range w.grants {
		if g.session == id {
			delete(w.grants, key)
			freed++
		}
	}
	w.wake()
	return freed
}

func (w *world) wake() {
	close(w.changed)
	w.changed = make(chan struct{})
}

func (w *world) open(ttl time.Duration) *v1.Session {
	var b [16]byte
	_, _ = rand.Read(b[:])
	id := hex.EncodeToString(b[:])
	if ttl == 0 {
		ttl = lock.DefaultTTL
	}
	w.sessions[id] = &session{ttl: ttl, dies: w.clock.Elapsed() + ttl}
	return &v1.Session{Id: id, Ttl: durationpb.New(ttl)}
}

func (w *world) heartbeat(req *v1.HeartbeatRequest) (*v1.HeartbeatResponse, error) {
	s := w.sessions[req.GetSessionId()]
	if s == nil {
		return nil, lock.ErrSessionDead
	}
	s.dies = max(s.dies, w.clock.Elapsed()+s.ttl)
	resp := &v1.HeartbeatResponse{Remaining: durationpb.New(s.ttl)}
	if req.HeldDigest != nil {
		var digest uint64
		held := &v1.HeldGrants{}
		for key, g := range w.grants {
			if g.session == req.GetSessionId() {
				k, _ := lock.NewKey("", key)
				digest ^= lock.DigestOne(k, lock.Token(g.token))
				held.Grants = append(held.Grants, g.message(key, w.clock.Elapsed()))
			}
		}
		if digest != req.GetHeldDigest() {
			resp.Held = held
		}
	}
	return resp, nil
}

func (g *grant) message(key string, now time.Duration) *v1.Grant {
	m := &v1.Grant{Namespace: lock.DefaultNamespace, Key: key, Token: g.token, RequestId: g.requestID}
	if g.ends > 0 {
		m.LeaseRemaining = durationpb.New(g.ends - now)
	}
	return m
}

func (w *world) acquire(req *v1.AcquireRequest) (*v1.AcquireResponse, error) {
	if w.sessions[req.GetSessionId()] == nil {
		return nil, lock.ErrSessionDead
	}
	now := w.clock.Elapsed()
	g := w.grants[req.GetKey()]
	if g == nil {
		w.token++
		g = &grant{session: req.GetSessionId(), requestID: req.GetRequestId(), token: w.token}
		lease := w.defaultLease
		if req.GetLease() != nil {
			lease = req.GetLease().AsDuration()
		}
		if lease > 0 {
			g.ends = now + lease
		}
		w.grants[req.GetKey()] = g
	}
	if g.session == req.GetSessionId() && g.requestID == req.GetRequestId() {
		return &v1.AcquireResponse{Outcome: &v1.AcquireResponse_Grant{Grant: g.message(req.GetKey(), now)}}, nil
	}
	held := &v1.Held{Owner: "holder", Token: g.token, AcquiredAt: timestamppb.Now(), Waiters: 3}
	return &v1.AcquireResponse{Outcome: &v1.AcquireResponse_Held{Held: held}}, nil
}

// acquireWaiting stands in line.
func (w *world) acquireWaiting(ctx context.Context, c call, req *v1.AcquireRequest) (resp *v1.AcquireResponse, err error) {
	start := w.clock.Elapsed()
	err = w.carry(ctx, c, func() error {
		timeout := time.NewTimer(req.GetWait().AsDuration())
		defer timeout.Stop()
		for {
			began := w.clock.Elapsed()
			if resp, err = w.acquire(req); err != nil || resp.GetHeld() == nil {
				if g := resp.GetGrant(); g != nil {
					g.Waited = durationpb.New(began - start)
				}
				return err
			}
			changed := w.changed
			w.mu.Unlock()
			again := true
			select {
			case <-changed:
			case <-timeout.C:
				again = false
			case <-ctx.Done():
				again = false
			}
			w.mu.Lock()
			if !again {
				return nil
			}
			w.pass()
		}
	})
	return resp, err
}

func (w *world) extend(req *v1.ExtendRequest) (*v1.ExtendResponse, error) {
	g := w.grants[req.GetKey()]
	if g == nil || g.session != req.GetSessionId() || g.token != req.GetToken() {
		return nil, lock.ErrLost
	}
	now := w.clock.Elapsed()
	if g.ends > 0 {
		g.ends = max(g.ends, now+req.GetLease().AsDuration())
	}
	return &v1.ExtendResponse{Grant: g.message(req.GetKey(), now)}, nil
}

func (w *world) release(key, session string, match func(*grant) bool) bool {
	g := w.grants[key]
	if g == nil || g.session != session || !match(g) {
		return false
	}
	delete(w.grants, key)
	w.wake()
	return true
}

// The rest is for tests.

// suffer says what happens to each call from now on.
func (w *world) suffer(fault func(c call) fault) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.fault = fault
}

// lease gives the grants of acquires that name none a lease.
func (w *world) lease(d time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.defaultLease = d
}

// holds reports whether the token's grant is live now.
func (w *world) holds(key string, token lock.Token) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.pass()
	g := w.grants[key]
	return g != nil && g.token == int64(token)
}

// insert makes a grant that nobody asked for, or asked for long ago.
func (w *world) insert(key string, id lock.SessionID, requestID string) lock.Token {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.token++
	w.grants[key] = &grant{session: id.Reveal(), requestID: requestID, token: w.token}
	return lock.Token(w.token)
}

// drop ends a grant as a revocation does, without telling anybody.
func (w *world) drop(key string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.grants, key)
	w.wake()
}

// end kills a session.
func (w *world) end(id lock.SessionID) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.kill(id.Reveal())
}

// tell sends an event to all streams.
func (w *world) tell(event *v1.SessionEvent) {
	w.mu.Lock()
	watchers := make([]chan *v1.SessionEvent, 0, len(w.watchers))
	for c := range w.watchers {
		watchers = append(watchers, c)
	}
	w.mu.Unlock()
	for _, c := range watchers {
		c <- event
	}
}

// seen returns the calls of a name so far.
func (w *world) seen(name string) []call {
	w.mu.Lock()
	defer w.mu.Unlock()
	var seen []call
	for _, c := range w.calls {
		if c.name == name {
			seen = append(seen, c)
		}
	}
	return slices.Clip(seen)
}

// wireError is how a server puts an error on the wire.
func wireError(err error) error {
	detail := errorDetail(err)
	if detail == nil {
		return err
	}
	wire := connect.NewError(connect.CodeFailedPrecondition, fmt.Errorf("%s", detail.GetMessage()))
	if detail.GetSafeToRetry() {
		wire = connect.NewError(connect.CodeUnavailable, fmt.Errorf("%s", detail.GetMessage()))
	}
	d, _ := connect.NewErrorDetail(detail)
	wire.AddDetail(d)
	return wire
}

func errorDetail(err error) *v1.ErrorDetail {
	numbers := map[lock.Code]v1.ErrorCode{
		lock.CodeLost: 1, lock.CodeSessionDead: 2, lock.CodeContention: 3, lock.CodeNotLeader: 4,
		lock.CodeTooManyWaiters: 5, lock.CodeInvalid: 6, lock.CodeDenied: 7,
	}
	code, known := numbers[lock.CodeOf(err)]
	if !known {
		return nil
	}
	return &v1.ErrorDetail{
		Code: code, Message: err.Error(), SafeToRetry: lock.IsRetryable(err), Ambiguous: lock.IsAmbiguous(err),
	}
}
