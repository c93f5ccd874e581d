package postgres

// LetHeartbeatsQueue has the heartbeats of a Store that is not in use yet take the connections that everything else takes.
func LetHeartbeatsQueue(s *Store) {
	s.pools.beats.Close()
	s.pools.beats = s.pools.work
}
