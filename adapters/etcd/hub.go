package etcd

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/fencelock/fencelock/core/lock"
	"github.com/fencelock/fencelock/core/port"
)

const (
	// linger is how long the shared watch stays open when nobody waits any more.
	linger = 30 * time.Second
	// reopenPause keeps a watch that fails at once from being opened in a tight loop.
	reopenPause = 100 * time.Millisecond
)

// hub wakes waiters. It holds one watch over all grants and their leases, for deletions only,
// open and in step with the store while anyone waits.
type hub struct {
	store *Store
	vigil vigil

	mu    sync.Mutex
	waits map[lock.Key]map[*wake]struct{}
	open  bool // a watch is open or being opened
	idle  bool // nobody has waited since the last look
}

func newHub(s *Store) *hub { return &hub{store: s, waits: map[lock.Key]map[*wake]struct{}{}} }

// wake is one registration.
type wake struct {
	hub   *hub
	key   lock.Key
	fired chan struct{}
}

// Register implements port.ReleaseWaiter.
func (s *Store) Register(key lock.Key, _ lock.Token) port.Wake { return s.waiters.register(key) }

func (h *hub) register(key lock.Key) *wake {
	w := &wake{hub: h, key: key, fired: make(chan struct{}, 1)}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.waits[key] == nil {
		h.waits[key] = map[*wake]struct{}{}
	}
	h.waits[key][w] = struct{}{}
	h.idle = false
	if !h.open {
		h.open = h.store.spawn(h.run)
	}
	return w
}

// Fired implements port.Wake.
func (w *wake) Fired() <-chan struct{} { return w.fired }

// Cancel implements port.Wake.
func (w *wake) Cancel() {
	h := w.hub
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.waits[w.key], w)
	if len(h.waits[w.key]) == 0 {
		delete(h.waits, w.key)
	}
}

func (w *wake) fire() {
	select {
	case w.fired <- struct{}{}:
	default:
	}
}

// run keeps the watch open until nobody has waited for a while, or the Store ends.
func (h *hub) run() {
	var next int64 // the revision to resume from; 0 for now
	for {
		turned := h.store.watermark.turn()
		resume, err := h.watch(next, turned)
		if err == nil {
			return
		}
		next = resume
		if next == 0 {
			h.store.report(Incident{Kind: WatchRestarted, Err: err})
		}
		select {
		case <-h.store.life.Done():
		case <-time.After(reopenPause):
		}
		select {
		case <-turned:
			next = 0
		default:
		}
	}
}

// watch watches from the revision next until the watch fails. It returns a nil error when it is
// not needed any more, else the revision from which nothing was missed; 0 if that is lost.
func (h *hub) watch(next int64, turned <-chan struct{}) (int64, error) {
	ctx, cancel := context.WithCancel(clientv3.WithRequireLeader(h.store.life))
	defer cancel()
	h.vigil.begin(h.store.now())
	keys := h.store.keys
	events := h.store.clients.Watcher.Watch(ctx, keys.folder(grantFolder), clientv3.WithRange(keys.folder(afterCaps)),
		clientv3.WithFilterPut(), clientv3.WithRev(next), clientv3.WithCreatedNotify())
	tick := time.NewTicker(linger)
	defer tick.Stop()
	for {
		select {
		case <-h.store.life.Done():
			return 0, nil
		case <-turned:
			return 0, errTurned
		case <-tick.C:
			if h.leave() {
				return 0, nil
			}
		case resp, ok := <-events:
			if err := watchErr(resp, ok); err != nil {
				return resumeFrom(next, err), err
			}
			h.store.watermark.shown(resp.Header.GetRevision())
			h.vigil.shown(resp.Header.GetRevision(), h.store.now())
			next = h.seen(next, resp)
		}
	}
}

// errWatchEnded is the cause where a watch ends and does not say why.
var errWatchEnded = errors.New("the watch ended")

// errTurned ends a watch over the revisions of before.
var errTurned = errors.New("the store went back in time, or its floor was raised")

// watchErr returns why a watch has ended.
func watchErr(resp clientv3.WatchResponse, ok bool) error {
	if err := resp.Err(); err != nil {
		return fmt.Errorf("watch: %w", err)
	}
	if !ok {
		return errWatchEnded
	}
	return nil
}

// resumeFrom returns the revision to resume from after the error.
func resumeFrom(next int64, err error) int64 {
	if errors.Is(err, rpctypes.ErrCompacted) {
		return 0
	}
	return next
}

// seen acts on an answer and returns the revision to resume from after it. That follows the
// events, not the answer's own revision, which may be ahead of events still to come.
func (h *hub) seen(next int64, resp clientv3.WatchResponse) int64 {
	if resp.Created && next == 0 {
		// Whoever registered before a fresh watch was in place may have missed
		// the event it waits for, and looks again.
		h.wakeAll()
		next = resp.Header.GetRevision() + 1
	}
	h.deleted(resp.Events)
	if n := len(resp.Events); n > 0 {
		next = resp.Events[n-1].GetKv().GetModRevision() + 1
	}
	return next
}

// leave closes the hub if nobody waits and nobody has since the last look.
func (h *hub) leave() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.waits) > 0 {
		h.idle = false
		return false
	}
	if !h.idle {
		h.idle = true
		return false
	}
	h.open, h.idle = false, false
	h.vigil.end()
	return true
}

// deleted wakes who waits for a key whose grant, or whose grant's lease, is gone.
func (h *hub) deleted(events []*clientv3.Event) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, ev := range events {
		folder, _ := h.store.keys.split(ev.GetKv().GetKey())
		if folder != grantFolder && folder != capFolder {
			continue
		}
		if key, ok := h.store.keys.lockKey(folder, ev.GetKv().GetKey()); ok {
			for w := range h.waits[key] {
				w.fire()
			}
		}
	}
}

func (h *hub) wakeAll() {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, waits := range h.waits {
		for w := range waits {
			w.fire()
		}
	}
}
