package etcd

import (
	"context"
	"errors"
	"sync"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/fencelock/fencelock/core/lock"
	"github.com/fencelock/fencelock/core/port"
)

const (
	// sideGuarantee is the guarantee that a session needs to ride the shared stream.
	sideGuarantee = time.Second
	// silence is how long the shared stream may answer nothing before it is replaced.
	silence = 500 * time.Millisecond
	// staleBeat is how old a heartbeat may be when it is sent; later ones would revive who
	// may have been told otherwise long ago.
	staleBeat = time.Second
	// sideStreams bounds the side streams.
	sideStreams = 16
	// beatRounds is how often one heartbeat is tried.
	beatRounds = 3
)

// tuning is what tests change to see the checks fail.
type tuning struct {
	// oneStream sends every keepalive over one stream, which is never replaced.
	oneStream bool
}

func (t tuning) orDefault() tuning { return t }

// heart renews sessions.
type heart struct {
	store *Store
	tuning
	side chan struct{}

	mu     sync.Mutex
	stream *stream // nil until needed
}

func newHeart(s *Store, t tuning) *heart {
	return &heart{store: s, tuning: t, side: make(chan struct{}, sideStreams)}
}

// errStale ends a heartbeat that could not be sent in time.
func errStale() error {
	return lock.Contention("the heartbeat waited too long to be sent", false, nil)
}

// errNoLease: the store knows no such lease.
var errNoLease = errors.New("the lease does not exist")

// Heartbeat implements port.SessionRegistry.
func (s *Store) Heartbeat(ctx context.Context, id lock.SessionID) (port.Vitals, error) {
	m, err := s.members.find(ctx, id)
	if err != nil {
		return port.Vitals{}, err
	}
	err = s.heart.renew(ctx, m)
	if errors.Is(err, errNoLease) {
		// Dead is for ever, so it is said only where the session's record is gone as well.
		s.members.forget(id)
		if _, err := s.members.reread(ctx, id); err != nil {
			return port.Vitals{}, err
		}
		return port.Vitals{}, lock.Contention("the session is about to end", false, nil)
	}
	remaining := m.remaining(s.now())
	if err != nil && remaining <= m.ttl/2 {
		return port.Vitals{}, translate(err, writes)
	}
	// Here either the store has renewed the session, or what it guaranteed
	// before is still long enough to be worth saying.
	return port.Vitals{Remaining: max(0, remaining), TTL: m.ttl}, nil
}

// renew sends one keepalive for the session and waits for its answer.
func (h *heart) renew(ctx context.Context, m *member) error {
	born := h.store.now()
	var err error
	for range beatRounds {
		if err := ctx.Err(); err != nil {
			return translate(err, writes)
		}
		var shared bool
		if shared, err = h.maySail(ctx, m); err != nil {
			return err
		}
		if shared {
			err = h.share(ctx, m, born)
		} else {
			err = h.alone(ctx, m, born)
		}
		if !errors.Is(err, errStream) {
			return err
		}
	}
	return err
}

// maySail reports whether the session's guarantee is known to be long enough for the shared
// stream. The server behind that stream is serial: a lease that has run out and is not yet
// revoked blocks it, for seconds and for everyone. An unknown one is asked for first.
func (h *heart) maySail(ctx context.Context, m *member) (bool, error) {
	if h.oneStream || m.remaining(h.store.now()) > sideGuarantee {
		return true, nil
	}
	p, err := h.store.askLease(ctx, m.lease, false)
	switch {
	case err != nil:
		return false, err
	case !p.exists:
		return false, errNoLease
	case p.seconds < 0:
		// It has run out: a keepalive could only wait for its end.
		return false, lock.Contention("the session is about to end", false, nil)
	}
	m.guarantee(p.until)
	return m.remaining(h.store.now()) > sideGuarantee, nil
}

// alone renews over a stream of its own, one of a bounded number.
func (h *heart) alone(ctx context.Context, m *member, born time.Duration) error {
	select {
	case h.side <- struct{}{}:
	case <-ctx.Done():
		return translate(ctx.Err(), reads)
	case <-h.store.life.Done():
		return translate(h.store.life.Err(), reads)
	}
	defer func() { <-h.side }()
	ctx, cancel := h.store.call(ctx)
	defer cancel()
	stream, err := h.store.clients.Lease.LeaseKeepAlive(ctx)
	if err != nil {
		return translate(err, writes)
	}
	sent := h.store.now()
	if sent-born > staleBeat {
		return errStale()
	}
	if err := stream.Send(&pb.LeaseKeepAliveRequest{ID: m.lease}); err != nil {
		return translate(err, writes)
	}
	resp, err := stream.Recv()
	if err != nil {
		return translate(err, writes)
	}
	if resp.GetTTL() <= 0 {
		return errNoLease
	}
	m.guarantee(sent + seconds(resp.GetTTL()))
	return nil
}

// share renews over the shared stream, or rides on a keepalive under way.
func (h *heart) share(ctx context.Context, m *member, born time.Duration) error {
	st := h.current()
	b := st.add(m, born)
	timer := time.NewTimer(silence)
	defer timer.Stop()
	for {
		select {
		case <-b.done:
			if b.err == nil {
				m.guarantee(b.until)
			}
			return b.err
		case <-ctx.Done():
			return translate(ctx.Err(), writes)
		case <-timer.C:
			if idle := st.idle(h.store.now()); idle >= silence && !h.oneStream {
				h.replace(st, errors.New("the stream fell silent"))
			} else {
				timer.Reset(max(silence-idle, silence/10))
			}
		}
	}
}

// current returns the shared stream, a new one if there is none.
func (h *heart) current() *stream {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.stream == nil {
		h.stream = newStream(h)
	}
	return h.stream
}

// replace gives a stream up; the next heartbeat opens another.
func (h *heart) replace(st *stream, cause error) {
	h.mu.Lock()
	if h.stream == st {
		h.stream = nil
	}
	h.mu.Unlock()
	if st.fail(cause) && h.store.life.Err() == nil {
		h.store.report(Incident{Kind: KeepaliveReplaced, Err: cause})
	}
}

// leader returns the context for a stream that lives as long as the Store.
func (h *heart) leader() (context.Context, context.CancelFunc) {
	return context.WithCancel(clientv3.WithRequireLeader(h.store.life))
}
