package turn

import (
	"context"
	"sync"
)

// Turns are the turns of all names. The zero value is ready to use.
type Turns struct {
	mu    sync.Mutex
	names map[string]*name
}

// name is a name that somebody has, or waits for.
type name struct {
	// turn holds one value while nobody has it.
	turn chan struct{}
	// users have it or wait for it.
	users int
}

// Take waits for the turn of a name. The caller gives it back by calling done, once. The error is that of ctx, which ended first.
func (t *Turns) Take(ctx context.Context, of string) (done func(), err error) {
	n := t.join(of)
	select {
	case <-n.turn:
		return func() {
			n.turn <- struct{}{}
			t.leave(of, n)
		}, nil
	case <-ctx.Done():
		t.leave(of, n)
		return nil, ctx.Err() //nolint:wrapcheck // it is the caller's own
	}
}

// At is how many have the turn of a name or wait for it; names is how many names somebody is at, which is all that is kept.
func (t *Turns) At(of string) (users, names int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if n := t.names[of]; n != nil {
		users = n.users
	}
	return users, len(t.names)
}

func (t *Turns) join(of string) *name {
	t.mu.Lock()
	defer t.mu.Unlock()
	n := t.names[of]
	if n == nil {
		n = &name{turn: make(chan struct{}, 1)}
		n.turn <- struct{}{}
		if t.names == nil {
			t.names = map[string]*name{}
		}
		t.names[of] = n
	}
	n.users++
	return n
}

func (t *Turns) leave(of string, n *name) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if n.users--; n.users == 0 {
		delete(t.names, of)
	}
}
