package service

// Leftovers counts what must be gone when nobody waits or watches: queues, places, bells,
// watches. Remembered handoff chains are bounded instead.
func (s *Service) Leftovers() (queues, places, bells, watches, chains int) {
	s.lines.mu.Lock()
	queues, chains = len(s.lines.byKey), len(s.lines.chains)
	for _, named := range s.lines.bySession {
		places += len(named)
	}
	places += len(s.lines.calls)
	s.lines.mu.Unlock()
	s.bells.mu.Lock()
	bells = len(s.bells.byKey)
	s.bells.mu.Unlock()
	s.hub.mu.Lock()
	watches = len(s.hub.watchers) + len(s.hub.watches) + len(s.hub.stale) + len(s.hub.later)
	s.hub.mu.Unlock()
	return queues, places, bells, watches, chains
}

// Served counts the sessions that the service remembers to serve.
func (s *Service) Served() int {
	s.hub.mu.Lock()
	defer s.hub.mu.Unlock()
	return len(s.hub.seen)
}

// Bounds that tests need.
const (
	MaxChains   = maxChains
	WatchBuffer = watchBuffer
	NewsBuffer  = newsBuffer
)
