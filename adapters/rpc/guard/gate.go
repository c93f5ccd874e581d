package guard

import (
	"context"
	"sync"

	"github.com/fencelock/fencelock/core/fence"
	"github.com/fencelock/fencelock/core/lock"
	"github.com/fencelock/fencelock/core/turn"
)

// Gate lets the writes of one resource through one at a time, first come, first served, each with an admitted token.
// Resources do not wait for each other. One Gate serves a whole process. It keeps nothing of a resource that nobody is at.
type Gate struct {
	guard *fence.Guard
	turns turn.Turns
}

// NewGate returns a Gate over marks, which decide for all processes, though the gate holds in this one only.
func NewGate(marks fence.HighWater) *Gate {
	return &Gate{guard: fence.New(marks)}
}

// Enter waits for the turn of a resource and for the admission of the token. After nil the caller writes and then
// calls leave, once or more, whatever became of the write. Errors are those of [fence.Guard.AdmitBy], and [lock.ErrContention]
// where ctx ended before the turn came; then there is nothing to leave.
func (g *Gate) Enter(ctx context.Context, rule fence.Rule, resource string, token lock.Token) (leave func(), err error) {
	// What can be refused at once does not wait.
	if err := fence.Check(resource, token, rule); err != nil {
		return nil, err
	}
	done, err := g.turns.Take(ctx, resource)
	if err != nil {
		return nil, lock.Contention("the resource's turn did not come in time", false, context.Cause(ctx))
	}
	free := sync.OnceFunc(done)
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
