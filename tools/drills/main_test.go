package drills_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/fencelock/fencelock/adapters/client"
	"github.com/fencelock/fencelock/tools/drills"
	"github.com/fencelock/fencelock/tools/testenv"
)

// patience is how long a drill waits for what must happen at all.
const patience = 90 * time.Second

var programs *drills.Programs

func TestMain(m *testing.M) {
	var err error
	if programs, err = drills.NewPrograms(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	code := testenv.Main(m).Run()
	_ = programs.Close()
	os.Exit(code)
}

// server is one running lock server.
type server struct {
	*drills.Process

	addr string
}

func (s *server) url() string { return "http://" + s.addr }

// startServer runs a lock server with its data under dir, or on the given
// etcd where endpoints is not empty, and returns when it says that it is ready.
func startServer(t *testing.T, dir, endpoints string, args ...string) *server {
	t.Helper()
	s := &server{addr: testenv.FreeAddress(t)}
	args = append([]string{
		"--server.addr=" + s.addr, "--admin.addr=" + testenv.FreeAddress(t), "--etcd.data-dir=" + filepath.Join(dir, "data"),
	}, args...)
	if endpoints != "" {
		args = append(args, "--lock.backend=etcd", "--etcd.endpoints="+endpoints)
	}
	s.Process = drills.Start(t, nil, programs.Path(t, "lockserver"), args...)
	s.AwaitOutput(t, "lockserver ready: rpc http://"+s.addr)
	return s
}

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
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
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
