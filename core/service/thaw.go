package service

import (
	"context"
	"sync"
	"time"
)

const (
	// stampEvery is how often the service notes that it is running.
	stampEvery = 250 * time.Millisecond
	// frozenAfter is the gap between two stamps that means a freeze.
	frozenAfter = time.Second
	// thawDoubt is how long after a freeze heartbeats are dropped: some of those
	// read now were sent before it.
	thawDoubt = time.Second
	// retryTicks and sweepTicks space the chores, in stamps.
	retryTicks = 4
	sweepTicks = 240
)

// thaw notices that this process was frozen (stopped, suspended, starved): the clock of
// a running service is stamped four times a second. After a freeze, requests
// that waited in sockets look new although their senders may have given up long ago.
type thaw struct {
	mu      sync.Mutex
	running bool
	last    time.Duration
	// until is the end of the doubt after a freeze.
	until time.Duration
}

// stamp notes that the service runs.
func (t *thaw) stamp(now time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.check(now)
	t.running, t.last = true, now
}

// doubtful reports whether a request read now may have been received long before.
func (t *thaw) doubtful(now time.Duration) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.check(now)
	return now < t.until
}

func (t *thaw) check(now time.Duration) {
	if t.running && now-t.last > frozenAfter {
		t.until = now + thawDoubt
	}
}

// keepHouse stamps the clock and does the rare chores.
func (s *Service) keepHouse(ctx context.Context) {
	ticker := time.NewTicker(stampEvery)
	defer ticker.Stop()
	for ticks := 1; ; ticks++ {
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return
		}
		now := s.clock.Elapsed()
		s.thaw.stamp(now)
		if ticks%retryTicks == 0 {
			s.hub.retry()
		}
		if ticks%sweepTicks == 0 {
			s.hub.sweep(now)
		}
	}
}
