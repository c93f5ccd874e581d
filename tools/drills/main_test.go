package drills_test

import (
	"context"
	"os"
	"testing"
	"time"

	"github.com/fencelock/fencelock/adapters/client"
	"github.com/fencelock/fencelock/tools/drills"
)

// patience is how long a drill waits for what must happen at all.
const patience = 90 * time.Second

// mortal is the TTL of a session that a drill lets die: no busy machine keeps it from its heartbeats for that long before.
const mortal = 15 * time.Second

var programs *drills.Programs

// atOnce is how many drills go on at the same time. They wait for sessions to die, and hardly compute.
const atOnce = 6

func TestMain(m *testing.M) {
	os.Exit(drills.RunTests(m, atOnce, func(p *drills.Programs) { programs = p }))
}

// startServer runs a lock server over the store and returns when it says that it is ready.
func startServer(t *testing.T, store drills.Store) *drills.Server {
	t.Helper()
	return programs.StartServer(t, store)
}

// kind is a kind of store.
type kind struct {
	name string
	open func(drills.T) drills.Store
}

// each are the stores for a drill with one server.
func each() []kind { return []kind{{"etcd", drills.Embedded}, {"postgres", drills.Postgres}} }

// common are the stores for a drill with several servers.
func common() []kind { return []kind{{"etcd", drills.Etcd}, {"postgres", drills.Postgres}} }

// dial returns an SDK client of the endpoints, closed with the test.
func dial(t *testing.T, endpoints ...string) *client.Client {
	t.Helper()
	c, err := client.New(endpoints)
	if err != nil {
		t.Fatalf("new client: %v", err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// openSession opens a session that is closed with the test.
func openSession(t *testing.T, c *client.Client, owner string, ttl time.Duration) *client.Session {
	t.Helper()
	s, err := c.OpenSession(t.Context(), owner, client.WithTTL(ttl))
	if err != nil {
		t.Fatalf("open session of %s: %v", owner, err)
	}
	t.Cleanup(func() {
		// Where its server is dead or cut off, the session dies by itself, and the test need not wait for that.
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		_, _ = s.Close(ctx)
	})
	return s
}

// eventually polls until the condition holds and fails the test if it never does.
func eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	limit := time.After(patience)
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for !holds() {
		select {
		case <-tick.C:
		case <-limit:
			t.Fatalf("still not after %v: %s", patience, what)
		}
	}
}

// within waits for the channel and fails the test if it never delivers.
func within[V any](t *testing.T, what string, c <-chan V) V {
	t.Helper()
	select {
	case v := <-c:
		return v
	case <-time.After(patience):
		t.Fatalf("still not after %v: %s", patience, what)
		panic("unreachable")
	}
}
