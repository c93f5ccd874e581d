package client_test

import (
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"sync/atomic"
	"testing"

	"github.com/fencelock/fencelock/adapters/client"
	"github.com/fencelock/fencelock/adapters/rpc"
	"github.com/fencelock/fencelock/contracts/parity/reference"
	"github.com/fencelock/fencelock/core/fence"
	"github.com/fencelock/fencelock/core/lock"
)

func newKey(t *testing.T) (*fence.Signer, *fence.Verifier) {
	t.Helper()
	public, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	verifier, err := fence.NewVerifier(public)
	if err != nil {
		t.Fatal(err)
	}
	return fence.NewSigner(private), verifier
}

// changing signs with the signer that it has at the moment.
type changing struct{ atomic.Pointer[fence.Signer] }

func (c *changing) Sign(key lock.Key, token lock.Token, sessionHash string) string {
	return c.Load().Sign(key, token, sessionHash)
}

func TestSignedTokens(t *testing.T) {
	t.Parallel()
	for name, opts := range ways() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			world := reference.New()
			t.Cleanup(world.Close)
			old, oldVerifier := newKey(t)
			signer := &changing{}
			signer.Store(old)
			endpoint, _ := adjustedServer(t, world, func(cfg *rpc.Config) { cfg.Signer = signer })
			c := realClient(t, []string{endpoint}, opts...)
			s, err := c.OpenSession(t.Context(), "first")
			if err != nil {
				t.Fatal(err)
			}
			onWire(t, c, opts)
			l, err := s.TryAcquire(t.Context(), "k")
			if err != nil {
				t.Fatal(err)
			}
			verify(t, oldVerifier, l.Key(), l.Token(), l.SignedToken())
			verify(t, oldVerifier, l.Key(), l.Token(), l.TokenHeader())
			fresh, freshVerifier := newKey(t)
			signer.Store(fresh)
			if err := l.Extend(t.Context(), 0); err != nil {
				t.Fatal(err)
			}
			verify(t, freshVerifier, l.Key(), l.Token(), l.TokenHeader())
			err = c.Do(t.Context(), "other", func(ctx context.Context, token lock.Token) error {
				key, err := lock.NewKey("", "other")
				verify(t, freshVerifier, key, token, client.TokenHeader(ctx))
				return err
			})
			if err != nil {
				t.Error(err)
			}
		})
	}
}

func verify(t *testing.T, v *fence.Verifier, key lock.Key, token lock.Token, text string) {
	t.Helper()
	if got, err := v.Read(key, text); err != nil || got != token {
		t.Errorf("%q is token %d, %v; want %d", text, got, err, token)
	}
}

func TestWithoutAKeyTheHeaderIsTheNumber(t *testing.T) {
	t.Parallel()
	world := reference.New()
	t.Cleanup(world.Close)
	endpoint, _ := realServer(t, world)
	c := realClient(t, []string{endpoint})
	s, err := c.OpenSession(t.Context(), "first")
	if err != nil {
		t.Fatal(err)
	}
	l, err := s.TryAcquire(t.Context(), "k")
	if err != nil {
		t.Fatal(err)
	}
	if l.SignedToken() != "" || l.TokenHeader() != "1" || l.Token() != 1 {
		t.Errorf("token %d is %q, %q in the header", l.Token(), l.SignedToken(), l.TokenHeader())
	}
	err = c.Do(t.Context(), "other", func(ctx context.Context, _ lock.Token) error {
		if got := client.TokenHeader(ctx); got != "2" {
			t.Errorf("header %q, want 2", got)
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
	if got := client.TokenHeader(t.Context()); got != "" {
		t.Errorf("header %q where there is no lock", got)
	}
}
