package testenv

import (
	"cmp"
	"context"
	"fmt"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
)

// bouncerAdvice says how to get the program.
const bouncerAdvice = "install pgbouncer (Debian: apt-get install pgbouncer; macOS: brew install pgbouncer)"

// PgBouncer starts a pgbouncer in front of the server of the database URL and returns that URL with
// the pooler's address in its place. Every database of the server can be reached there, by the role of
// the URL. Connections are pooled by transaction; settings such as "default_pool_size=2" are added to
// its own. It ends with the test, and fails it where there is no pgbouncer.
func PgBouncer(t T, databaseURL string, settings ...string) string {
	t.Helper()
	upstream, err := url.Parse(databaseURL)
	if err != nil {
		t.Fatalf("read URL of PostgreSQL: %v", err)
	}
	p := &bouncer{upstream: upstream, settings: settings}
	h, err := newProcess(t.Context(), "", p)
	if err != nil {
		t.Fatalf("%v", err)
	}
	t.Cleanup(func() {
		if err := h.remove(); err != nil {
			t.Logf("remove pgbouncer: %v", err)
		}
	})
	if err := start(t.Context(), p, h); err != nil {
		t.Fatalf("%v", err)
	}
	return h.endpoint()
}

// bouncer is the program.
type bouncer struct {
	upstream *url.URL
	settings []string
}

func (*bouncer) name() string { return "pgbouncer" }

func (b *bouncer) endpoint(address string) string {
	own := *b.upstream
	own.Host = address
	return own.String()
}

// healthy asks the server through the pooler.
func (*bouncer) healthy(ctx context.Context, endpoint string) error {
	return healthyDatabase(ctx, endpoint)
}

func (b *bouncer) local(_ context.Context, _, dir, address string) (local, error) {
	path, err := findBouncer([]string{"/usr/sbin", "/usr/local/bin", "/opt/homebrew/bin"})
	if err != nil {
		return local{}, err
	}
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return local{}, fmt.Errorf("read port: %w", err)
	}
	owner, err := unprivileged(dir)
	if err != nil {
		return local{}, err
	}
	users, config := filepath.Join(dir, "users"), filepath.Join(dir, "pgbouncer.ini")
	password, known := b.upstream.User.Password()
	auth := "scram-sha-256"
	if !known {
		auth = "trust"
	}
	if err := giveFile(users, quote(b.upstream.User.Username())+" "+quote(password)+"\n", owner); err != nil {
		return local{}, err
	}
	lines := slices.Concat([]string{
		"[databases]",
		"* = host=" + b.upstream.Hostname() + " port=" + cmp.Or(b.upstream.Port(), "5432"),
		"[pgbouncer]",
		"listen_addr=" + host,
		"listen_port=" + port,
		"unix_socket_dir=",
		"auth_type=" + auth,
		"auth_file=" + users,
		"pool_mode=transaction",
		"max_client_conn=400",
	}, b.settings)
	if err := giveFile(config, strings.Join(lines, "\n")+"\n", owner); err != nil {
		return local{}, err
	}
	return local{path: path, args: []string{config}, stop: syscall.SIGINT, user: owner, stranger: true}, nil
}

// findBouncer looks on PATH first, and then in the folders.
func findBouncer(folders []string) (string, error) {
	for _, folder := range append(filepath.SplitList(os.Getenv("PATH")), folders...) {
		if path, err := exec.LookPath(filepath.Join(folder, "pgbouncer")); err == nil {
			return path, nil
		}
	}
	return "", fmt.Errorf("no pgbouncer on PATH: %s", bouncerAdvice)
}

// quote writes a word of pgbouncer's list of users.
func quote(word string) string { return `"` + strings.ReplaceAll(word, `"`, `""`) + `"` }
