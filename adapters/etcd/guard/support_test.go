package guard_test

import (
	"context"
	"errors"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/goleak"
	"go.uber.org/zap"

	"github.com/fencelock/fencelock/adapters/etcd/guard"
	"github.com/fencelock/fencelock/core/fence"
	"github.com/fencelock/fencelock/core/lock"
	"github.com/fencelock/fencelock/tools/testenv"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(testenv.Main(m)) }

// place is a prefix of its own in the shared etcd.
type place struct {
	*guard.Marks

	client *clientv3.Client
	prefix string
}

func newPlace(t *testing.T) *place {
	t.Helper()
	return at(client(t, testenv.Etcd(t).Endpoints...), "guard/"+lock.NewSessionID().Reveal()+"/")
}

func at(c *clientv3.Client, prefix string) *place {
	return &place{Marks: guard.New(c, prefix+"mark/"), client: c, prefix: prefix}
}

func client(t *testing.T, endpoints ...string) *clientv3.Client {
	t.Helper()
	c, err := clientv3.New(clientv3.Config{Endpoints: endpoints, Logger: zap.NewNop()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// put is a write of the holder's, beside the marks.
func (p *place) put(name, value string) clientv3.Op { return clientv3.OpPut(p.prefix+name, value) }

// get reads what a holder wrote; "" if nothing.
func (p *place) get(t *testing.T, name string) string {
	t.Helper()
	resp, err := p.client.Get(t.Context(), p.prefix+name)
	if err != nil {
		t.Fatal(err)
	}
	if len(resp.Kvs) == 0 {
		return ""
	}
	return string(resp.Kvs[0].GetValue())
}

func (p *place) set(t *testing.T, name, value string) {
	t.Helper()
	if _, err := p.client.Put(t.Context(), p.prefix+name, value); err != nil {
		t.Fatal(err)
	}
}

// advance is one way to compare and raise.
type advance func(ctx context.Context, resource string, token lock.Token, rule fence.Rule) (fence.Verdict, error)

// step is one token that comes, and what becomes of it.
type step struct {
	rule     fence.Rule
	token    lock.Token
	admitted bool
}

// follow asks for the steps one after another and returns the first that went wrong; nil if none did.
func follow(t *testing.T, ask advance, steps []step) *step {
	t.Helper()
	highest := lock.Token(0)
	for _, s := range steps {
		v, err := ask(t.Context(), "a", s.token, s.rule)
		if err != nil {
			t.Fatalf("%d by %s: %v", s.token, s.rule, err)
		}
		if s.admitted {
			highest = s.token
		}
		if v != (fence.Verdict{Admitted: s.admitted, Highest: highest}) {
			return &s
		}
	}
	return nil
}

// refused expects a refusal that tells the mark.
func refused(t *testing.T, what string, err error, want fence.FencedOutError) {
	t.Helper()
	if got, ok := errors.AsType[*fence.FencedOutError](err); !ok || *got != want {
		t.Errorf("%s: got %v, want %+v", what, err, want)
	}
}

// expect compares the code of an error and whether its outcome is open.
func expect(t *testing.T, what string, err, want error, unknown bool) {
	t.Helper()
	if !errors.Is(err, want) || lock.IsAmbiguous(err) != unknown {
		t.Errorf("%s: got %v (ambiguous %v), want %v (%v)", what, err, lock.IsAmbiguous(err), want, unknown)
	}
}
