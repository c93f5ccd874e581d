package guard

import (
	"context"
	"sync"

	"github.com/fencelock/fencelock/core/fence"
	"github.com/fencelock/fencelock/core/lock"
)

// Gate lets the writes of one resource through one at a time, first come, first served, each with an admitted token.
// Resources do not wait for each other. One Gate serves a whole process. It keeps nothing of a resource that nobody is at.
type Gate struct {
	guard *fence.Guard

	mu    sync.Mutex
	turns map[string]*turn
}

// turn is a resource's; it is in the map while someone is at it.
type turn struct {
	// taken holds one element while someone has the turn.
	taken chan struct{}
	// people have the turn or wait for it.
	people int
}

// NewGate returns a Gate over marks, which decide for all processes, though the gate holds in this one only.
func NewGate(marks fence.HighWater) *Gate {
	return &Gate{guard: fence.New(marks), turns: map[string]*turn{}}
}

// Enter waits for the turn of a resource and for the admission of the token. After nil the caller writes and then
// calls leave, once or more, whatever became of the write. Errors are those of [fence.Guard.AdmitBy], and [lock.ErrContention]
// where ctx ended before the turn came; then there is nothing to leave.
func (g *Gate) Enter(ctx context.Context, rule fence.Rule, resource string, token lock.Token) (leave func(), err error) {
	// What can be refused at once does not wait.
	if err := fence.Check(resource, token, rule); err != nil {
		return nil, err
	}
	t := g.join(resource)
	select {
	case t.taken <- struct{}{}:
	case <-ctx.Done():
		g.part(resource, t)
		return nil, lock.Contention("the resource's turn did not come in time", false, context.Cause(ctx))
	}
	free := sync.OnceFunc(func() {
		<-t.taken
		g.part(resource, t)
	})
	defer func() {
		if leave == nil { // also where the marks panic
			free()
		}
	}()
	if err := g.guard.AdmitBy(ctx, rule, resource, token); err != nil {
		return nil, err
	}
	return free, nil
}

func (g *Gate) join(resource string) *turn {
	g.mu.Lock()
	defer g.mu.Unlock()
	t, there := g.turns[resource]
	if !there {
		t = &turn{taken: make(chan struct{}, 1)}
		g.turns[resource] = t
	}
	t.people++
	return t
}

func (g *Gate) part(resource string, t *turn) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if t.people--; t.people == 0 {
		delete(g.turns, resource)
	}
}
