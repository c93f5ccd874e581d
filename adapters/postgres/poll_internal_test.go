package postgres

// LateActs is how many numbers that were passed over are looked for in a row.
const LateActs = lateActs

// Poll lets a Store that does nothing on its own look for what others do.
func Poll(s *Store) {
	s.work.Go(s.feed.run)
	s.work.Go(func() { s.poll(s.life) })
}
