package etcd

import (
	"context"
	"time"
)

const (
	// sweepers is how many leases are ended at a time.
	sweepers = 2
	// sweepBacklog bounds the leases that wait to be ended.
	sweepBacklog = 4096
	// sweepTimeout bounds the end of one lease.
	sweepTimeout = 5 * time.Second
	// sweepDelay is how long a lease outlives its use where others may just ask for it.
	sweepDelay = 3 * time.Second
)

// sweeper ends leases that nobody uses any more, off the path of callers. It
// is tidiness: each of them would run out by itself within ten minutes.
type sweeper struct {
	store *Store
	queue chan int64
}

func newSweeper(s *Store) *sweeper { return &sweeper{store: s, queue: make(chan int64, sweepBacklog)} }

func (w *sweeper) start() {
	for range sweepers {
		w.store.work.Go(w.run)
	}
}

func (w *sweeper) run() {
	for {
		select {
		case <-w.store.life.Done():
			return
		case id := <-w.queue:
			ctx, cancel := context.WithTimeout(w.store.life, sweepTimeout)
			_, _, _ = w.store.endLease(ctx, id) // what fails runs out by itself
			cancel()
		}
	}
}

// discard ends a lease soon; 0 is none.
func (w *sweeper) discard(id int64) {
	if id == 0 {
		return
	}
	select {
	case w.queue <- id:
	default:
		w.store.report(Incident{Kind: CleanupDropped})
	}
}

// discardLate ends a lease in a moment. A timer that fires after the Store has ended does nothing.
func (w *sweeper) discardLate(id int64) { time.AfterFunc(sweepDelay, func() { w.discard(id) }) }
