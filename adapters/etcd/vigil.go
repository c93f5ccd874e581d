package etcd

import (
	"sync"
	"time"

	"github.com/fencelock/fencelock/core/lock"
)

// watchPatience is how long a watch may owe what it should show.
const watchPatience = 10 * time.Second

// vigil notices a watch that is stuck: one that is not in place long after it was opened, or that has not shown
// what this Store itself has ended long ago. Nothing else tells, since a watch without news is silent.
type vigil struct {
	mu   sync.Mutex
	open bool
	// owes is set while the watch has not shown the revision due; since when.
	owes  bool
	due   int64
	since time.Duration
	// seen is what it has shown; that may be before anyone expects it.
	seen int64
}

// begin: the watch is being opened, and owes to say that it is in place.
func (v *vigil) begin(now time.Duration) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.open, v.due, v.seen = true, 0, 0
	if !v.owes {
		v.owes, v.since = true, now
	}
}

// end: nobody needs the watch any more.
func (v *vigil) end() {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.open, v.owes = false, false
}

// expect: the watch owes an event of the revision.
func (v *vigil) expect(rev int64, now time.Duration) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if !v.open || rev <= v.seen {
		return
	}
	v.due = max(v.due, rev)
	if !v.owes {
		v.owes, v.since = true, now
	}
}

// shown: the watch has got to the revision.
func (v *vigil) shown(rev int64, now time.Duration) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.seen = max(v.seen, rev)
	v.owes, v.since = v.due > v.seen, now
}

// check returns a retryable error while the watch is stuck.
func (v *vigil) check(now time.Duration) error {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.owes && now-v.since > watchPatience {
		return lock.Contention("the store's notifications are stuck", false, nil)
	}
	return nil
}
