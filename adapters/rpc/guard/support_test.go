package guard_test

import (
	"context"
	"crypto/ed25519"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/fencelock/fencelock/core/fence"
	"github.com/fencelock/fencelock/core/lock"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// patience bounds every wait for what must happen.
const patience = 30 * time.Second

// memory keeps marks for one process.
type memory struct {
	mu    sync.Mutex
	marks map[string]lock.Token
	// fails is what it answers with instead.
	fails error
}

func newMemory() *memory { return &memory{marks: map[string]lock.Token{}} }

func (m *memory) Advance(_ context.Context, resource string, token lock.Token, rule fence.Rule) (fence.Verdict, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.fails != nil {
		return fence.Verdict{}, m.fails
	}
	if !rule.Admits(token, m.marks[resource]) {
		return fence.Verdict{Highest: m.marks[resource]}, nil
	}
	m.marks[resource] = token
	return fence.Verdict{Admitted: true, Highest: token}, nil
}

func newKey(t *testing.T, name string) lock.Key {
	t.Helper()
	k, err := lock.NewKey("", name)
	if err != nil {
		t.Fatal(err)
	}
	return k
}

// signing makes a signer and who believes it.
func signing(t *testing.T) (*fence.Signer, *fence.Verifier) {
	t.Helper()
	public, private, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	v, err := fence.NewVerifier(public)
	if err != nil {
		t.Fatal(err)
	}
	return fence.NewSigner(private), v
}

// eventually waits for a condition.
func eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	timeout := time.After(patience)
	for !holds() {
		select {
		case <-tick.C:
		case <-timeout:
			t.Fatalf("waited in vain: %s", what)
		}
	}
}
