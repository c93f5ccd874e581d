package testenv_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"os/exec"
	"testing"

	"github.com/jackc/pgx/v5"
	"go.uber.org/goleak"

	"github.com/fencelock/fencelock/tools/testenv"
)

// envVictim makes this test binary a process that starts a shared server and waits to be killed.
const envVictim = "FENCELOCK_TESTENV_VICTIM"

func TestMain(m *testing.M) {
	if server := os.Getenv(envVictim); server != "" {
		beVictim(server)
	}
	goleak.VerifyTestMain(testenv.Main(m))
}

func beVictim(server string) {
	r := &recorder{}
	failed := r.run(func() {
		switch server {
		case "etcd":
			fmt.Println(testenv.Etcd(r).Endpoints[0])
		case "postgres":
			fmt.Println(testenv.Postgres(r).URL)
		}
	})
	if failed {
		fmt.Fprintln(os.Stderr, r.text())
		os.Exit(1)
	}
	select {}
}

func TestServersEndWithAKilledTestProcess(t *testing.T) {
	t.Parallel()
	cases := []struct {
		server string
		// data is the folder of its data if it is on this machine.
		data func(t *testing.T, url string) string
		ask  func(ctx context.Context, url string) error
	}{
		{"etcd", func(*testing.T, string) string { return "" }, func(ctx context.Context, url string) error {
			return tryPut(ctx, url, "value")
		}},
		{"postgres", func(t *testing.T, url string) string {
			t.Helper()
			return query[string](t, url, "SHOW data_directory")
		}, func(ctx context.Context, url string) error {
			conn, err := pgx.Connect(ctx, url)
			if err != nil {
				return err
			}
			return conn.Close(ctx)
		}},
	}
	for _, c := range cases {
		t.Run(c.server, func(t *testing.T) {
			t.Parallel()
			victim, address := startVictim(t, c.server)
			data := c.data(t, address)
			if err := c.ask(t.Context(), address); err != nil {
				t.Fatal(err)
			}
			if err := victim.Process.Kill(); err != nil {
				t.Fatal(err)
			}
			_ = victim.Wait()
			// A server whose data is gone refuses every request, but it is still there.
			eventually(t, func() bool { return !listens(t, address) })
			eventually(t, func() bool {
				_, err := os.Stat(data)
				return errors.Is(err, os.ErrNotExist)
			})
		})
	}
}

// listens reports whether anybody takes connections at the host and port of a URL.
func listens(t *testing.T, address string) bool {
	t.Helper()
	u, err := url.Parse(address)
	if err != nil {
		t.Fatal(err)
	}
	conn, err := net.Dial("tcp", u.Host)
	if err != nil {
		return false
	}
	_ = conn.Close()
	return true
}

// startVictim returns a process and the URL of the server that it has started.
func startVictim(t *testing.T, server string) (victim *exec.Cmd, address string) {
	t.Helper()
	victim = exec.CommandContext(t.Context(), os.Args[0])
	victim.Env = append(os.Environ(), envVictim+"="+server, "FENCELOCK_TEST_ETCD=", "FENCELOCK_TEST_POSTGRES=")
	if os.Getenv("FENCELOCK_TEST_ENV") == "address" {
		victim.Env = append(victim.Env, "FENCELOCK_TEST_ENV=")
	}
	victim.Stderr = os.Stderr
	out, err := victim.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := victim.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(out)
	if !lines.Scan() {
		t.Fatalf("the process ended: %v", victim.Wait())
	}
	return victim, lines.Text()
}
