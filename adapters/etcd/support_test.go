package etcd_test

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/goleak"
	"go.uber.org/zap"

	"github.com/fencelock/fencelock/adapters/etcd"
	"github.com/fencelock/fencelock/contracts/parity"
	"github.com/fencelock/fencelock/core/clock"
	"github.com/fencelock/fencelock/core/lock"
	"github.com/fencelock/fencelock/core/port"
	"github.com/fencelock/fencelock/tools/testenv"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(testenv.Main(m)) }

// patience bounds every wait for what must happen.
const patience = 30 * time.Second

// tempT gives a parity.T the folder that testenv.T asks for; the shared server needs none.
type tempT struct{ parity.T }

func (tempT) TempDir() string { return "" }

// freshPrefix is a place of its own in the shared etcd.
func freshPrefix() string { return "test/" + lock.NewSessionID().Reveal() + "/" }

// config is a Store's at the prefix.
func config(prefix string) etcd.Config { return etcd.Config{Prefix: prefix, Clock: clock.Boot{}} }

// raw opens a client of etcd itself.
func raw(t parity.T, endpoints []string) *clientv3.Client {
	t.Helper()
	client, err := clientv3.New(clientv3.Config{Endpoints: endpoints, Logger: zap.NewNop()})
	if err != nil {
		t.Fatalf("open etcd client: %v", err)
	}
	t.Cleanup(func() { _ = client.Close() })
	return client
}

// dial opens a Store that ends with the test.
func dial(t parity.T, endpoints []string, cfg etcd.Config) *etcd.Store {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	store, err := etcd.Dial(ctx, etcd.Access{Endpoints: endpoints}, cfg)
	if err != nil {
		t.Fatalf("dial: %v", err)
	}
	t.Cleanup(func() { _ = store.Close() })
	return store
}

// sessionKey is where a session's record stands: the id itself is in no key.
func sessionKey(prefix string, id lock.SessionID) string {
	sum := sha256.Sum256([]byte(id.Reveal()))
	return prefix + "s/" + hex.EncodeToString(sum[:16])
}

// leaseOf returns the etcd lease of a session.
func leaseOf(t parity.T, client *clientv3.Client, prefix string, id lock.SessionID) clientv3.LeaseID {
	t.Helper()
	resp, err := client.Get(t.Context(), sessionKey(prefix, id))
	if err != nil || len(resp.Kvs) != 1 {
		t.Fatalf("find the session's lease: %v", err)
	}
	return clientv3.LeaseID(resp.Kvs[0].GetLease())
}

// newFixture binds the parity suite: hooks, and nothing else.
func newFixture(t parity.T) parity.Fixture {
	t.Helper()
	server := testenv.Etcd(tempT{t})
	proxy := testenv.NewProxy(tempT{t}, server.Endpoints[0])
	prefix := freshPrefix()
	client := raw(t, server.Endpoints)
	first, second := dial(t, []string{proxy.Addr}, config(prefix)), dial(t, server.Endpoints, config(prefix))
	return parity.Fixture{
		First:  first.Backend(),
		Second: second.Backend(),
		KillSession: func(t parity.T, id lock.SessionID) {
			t.Helper()
			if _, err := client.Revoke(t.Context(), leaseOf(t, client, prefix, id)); err != nil {
				t.Fatalf("kill session: %v", err)
			}
		},
		Partition: func(t parity.T) func() {
			t.Helper()
			proxy.Cut()
			heal := func() { proxy.Heal() }
			unreachable(t, first, "partition")
			return heal
		},
		Pause: func(t parity.T) func() {
			t.Helper()
			proxy.HoldAnswers()
			t.Cleanup(proxy.ReleaseAnswers)
			unreachable(t, first, "pause")
			return proxy.ReleaseAnswers
		},
		Stop: func(t parity.T) {
			t.Helper()
			proxy.Cut()
			_ = first.Close()
			unreachable(t, first, "stop")
		},
	}
}

// unreachable proves that a Store cannot ask etcd.
func unreachable(t parity.T, store port.Custodian, hook string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	if err := store.Ping(ctx); err == nil {
		t.Fatalf("%s: the store still answers", hook)
	}
}
