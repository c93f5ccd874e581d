package fence_test

import (
	"context"
	"sync"

	"github.com/fencelock/fencelock/core/fence"
	"github.com/fencelock/fencelock/core/lock"
)

// memory is the simplest HighWater: good within one process that never restarts.
type memory struct {
	mu    sync.Mutex
	marks map[string]lock.Token
	asked int
}

func newMemory() *memory { return &memory{marks: map[string]lock.Token{}} }

func (m *memory) Advance(_ context.Context, resource string, token lock.Token, rule fence.Rule) (fence.Verdict, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.asked++
	if !rule.Admits(token, m.marks[resource]) {
		return fence.Verdict{Highest: m.marks[resource]}, nil
	}
	m.marks[resource] = token
	return fence.Verdict{Admitted: true, Highest: token}, nil
}

// broken is a HighWater that cannot be asked.
type broken struct{}

func (broken) Advance(context.Context, string, lock.Token, fence.Rule) (fence.Verdict, error) {
	// A careless adapter: the error decides, not what stands beside it.
	return fence.Verdict{Admitted: true}, lock.Contention("the store did not answer", true, nil)
}
