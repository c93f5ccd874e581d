package guard

// At is how many have the turn of a resource or wait for it; resources is how many somebody is at.
func (g *Gate) At(resource string) (people, resources int) { return g.turns.At(resource) }
