package guard

// At is how many have the turn of a resource or wait for it; resources is how many somebody is at.
func (g *Gate) At(resource string) (people, resources int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if t := g.turns[resource]; t != nil {
		people = t.people
	}
	return people, len(g.turns)
}
