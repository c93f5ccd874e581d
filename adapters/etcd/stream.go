package etcd

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
)

// errStream: the stream failed under the heartbeat, which may be tried again.
var errStream = errors.New("the keepalive stream failed")

// beat is one keepalive on the shared stream. Fields after done are set before it is closed.
type beat struct {
	lease int64
	// born is when it was asked for, worth the end of the guarantee it was admitted by.
	born, worth, sent time.Duration

	done  chan struct{}
	until time.Duration
	err   error
}

// stream is one bidirectional keepalive stream with two goroutines: one opens it and sends, one
// receives. It ends with its context.
type stream struct {
	heart *heart
	ctx   context.Context //nolint:containedctx // It is the life of the stream, which outlives the heartbeat that opened it.
	end   context.CancelFunc

	mu      sync.Mutex
	pending map[int64]*beat // by lease, sent or not
	queue   []*beat         // not sent yet
	wake    chan struct{}   // tells the sender of the queue
	heard   time.Duration   // when the store answered last, or when it had nothing to answer
	failed  bool
}

func newStream(h *heart) *stream {
	st := &stream{
		heart: h, pending: map[int64]*beat{}, wake: make(chan struct{}, 1), heard: h.store.now(),
	}
	st.ctx, st.end = h.leader()
	if !h.store.spawn(st.run) {
		st.fail(errClosed)
	}
	return st
}

// add puts a keepalive for the session on the stream, or joins the one under way.
func (st *stream) add(m *member, born time.Duration) *beat {
	now := st.heart.store.now()
	st.mu.Lock()
	defer st.mu.Unlock()
	if b, ok := st.pending[m.lease]; ok {
		return b
	}
	b := &beat{lease: m.lease, born: born, worth: time.Duration(m.until.Load()), done: make(chan struct{})}
	if st.failed {
		b.finish(errStream)
		return b
	}
	if len(st.pending) == 0 {
		st.heard = now
	}
	st.pending[m.lease] = b
	st.queue = append(st.queue, b)
	select {
	case st.wake <- struct{}{}:
	default:
	}
	return b
}

func (b *beat) finish(err error) {
	b.err = err
	close(b.done)
}

// idle is for how long the store owes an answer and has given none.
func (st *stream) idle(now time.Duration) time.Duration {
	st.mu.Lock()
	defer st.mu.Unlock()
	return now - st.heard
}

// fail ends the stream and every keepalive on it; false if it had failed before.
func (st *stream) fail(cause error) bool {
	st.mu.Lock()
	defer st.mu.Unlock()
	if st.failed {
		return false
	}
	st.failed = true
	st.end()
	for _, b := range st.pending {
		b.finish(fmt.Errorf("%w: %w", errStream, cause))
	}
	st.pending, st.queue = nil, nil
	return true
}

// run opens the stream and sends what is queued.
func (st *stream) run() {
	defer st.end()
	client, err := st.heart.store.clients.Lease.LeaseKeepAlive(st.ctx)
	if err != nil {
		st.heart.replace(st, err)
		return
	}
	st.heart.store.work.Go(func() { st.receive(client) })
	for {
		select {
		case <-st.ctx.Done():
			st.heart.replace(st, st.ctx.Err())
			return
		case <-st.wake:
		}
		for _, lease := range st.due() {
			if err := client.Send(&pb.LeaseKeepAliveRequest{ID: lease}); err != nil {
				st.heart.replace(st, err)
				return
			}
		}
	}
}

// due takes the queue, drops what has become too old to send, and stamps the rest.
func (st *stream) due() []int64 {
	now := st.heart.store.now()
	st.mu.Lock()
	defer st.mu.Unlock()
	var leases []int64
	for _, b := range st.queue {
		if now-b.born > staleBeat || (!st.heart.oneStream && b.worth-now < sideGuarantee/2) {
			delete(st.pending, b.lease)
			b.finish(errStale())
			continue
		}
		b.sent = now
		leases = append(leases, b.lease)
	}
	st.queue = nil
	return leases
}

// receive hands answers to the keepalives that wait for them.
func (st *stream) receive(client pb.Lease_LeaseKeepAliveClient) {
	for {
		resp, err := client.Recv()
		if err != nil {
			st.heart.replace(st, err)
			return
		}
		st.answered(resp)
	}
}

func (st *stream) answered(resp *pb.LeaseKeepAliveResponse) {
	now := st.heart.store.now()
	st.mu.Lock()
	defer st.mu.Unlock()
	st.heard = now
	b, ok := st.pending[resp.GetID()]
	if !ok {
		return
	}
	delete(st.pending, resp.GetID())
	if resp.GetTTL() <= 0 {
		b.finish(errNoLease)
		return
	}
	b.until = b.sent + seconds(resp.GetTTL())
	b.finish(nil)
}
