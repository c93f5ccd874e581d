package main

import (
	"bytes"
	"crypto/rand"
	"errors"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"strings"
	"syscall"
	"testing"

	"connectrpc.com/connect"

	"github.com/fencelock/fencelock/apps/program"
	fencelockv1 "github.com/fencelock/fencelock/contracts/api/fencelock/v1"
	"github.com/fencelock/fencelock/tools/testenv"
)

// guarded is a database with secrets in its URL.
type guarded struct {
	url     *url.URL
	secrets []string
}

func newGuarded(t *testing.T) guarded {
	t.Helper()
	address, err := url.Parse(testenv.Postgres(t).Database(t))
	if err != nil {
		t.Fatal(err)
	}
	g := guarded{url: address, secrets: []string{rand.Text()}}
	query := address.Query()
	query.Set("sslpassword", g.secrets[0])
	address.RawQuery = query.Encode()
	// One that somebody else has chosen may be a word that stands in every log.
	if password, _ := address.User.Password(); len(password) > 16 {
		g.secrets = append(g.secrets, password)
	}
	return g
}

// with is the URL, changed.
func (g guarded) with(change func(*url.URL)) string {
	changed := *g.url
	change(&changed)
	return changed.String()
}

func (g guarded) check(t *testing.T, what, text string) {
	t.Helper()
	for _, secret := range g.secrets {
		if strings.Contains(text, secret) {
			t.Errorf("%s shows a password: %s", what, text)
		}
	}
}

func TestNoOutputShowsAPassword(t *testing.T) {
	t.Parallel()
	g := newGuarded(t)
	network := testenv.NewProxy(t, g.url.String())
	p := postgres(network.URL(), t.TempDir()).launch(t, "--log.level=debug")
	if want := "PostgreSQL at " + network.Addr + g.url.Path + "\n"; !strings.HasSuffix(p.ready, want) {
		t.Errorf("ready line %q, want it to end in %q", p.ready, want)
	}
	session := p.open(t)
	p.acquire(t, session, "demo", "r1")
	g.check(t, "metrics", p.get(t, "/metrics"))
	network.Cut()
	p.waitForLog(t, `"not_ready"`)
	g.check(t, "readiness", p.get(t, "/readyz"))
	_, err := p.locks().Inspect(t.Context(), connect.NewRequest(&fencelockv1.InspectRequest{Key: "demo"}))
	var answer *connect.Error
	if !errors.As(err, &answer) || answer.Code() != connect.CodeUnavailable {
		t.Errorf("without its store: %v", err)
	}
	g.check(t, "an answer", err.Error())
	network.Heal()
	p.waitForLog(t, `"ready_again"`)
	p.terminate(t)
	p.exit(t)
	g.check(t, "output", p.ready+p.errors.String())
}

func (p *process) get(t *testing.T, path string) string {
	t.Helper()
	response, err := http.Get(p.admin + path)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = response.Body.Close() }()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// TestADatabaseThatCannotBeUsedIsOneClearLine covers serving and migrating.
func TestADatabaseThatCannotBeUsedIsOneClearLine(t *testing.T) {
	t.Parallel()
	g := newGuarded(t)
	nobody := testenv.FreeAddress(t)
	for name, test := range map[string]struct{ url, says string }{
		"nobody answers": {g.with(func(u *url.URL) { u.Host = nobody }), nobody},
		"nobody answers anywhere": {
			g.with(func(u *url.URL) { u.Host = nobody + "," + testenv.FreeAddress(t) }), "refused",
		},
		"no such database": {g.with(func(u *url.URL) { u.Path = "/fencelock_nowhere" }), `the store has no such database`},
		"wrong password": {
			g.with(func(u *url.URL) { u.User = url.UserPassword("fencelock_nobody", g.secrets[0]) }), "the store refuses the server's role, or its password",
		},
		"unsafe setting": {
			g.with(func(u *url.URL) { u.RawQuery += "&synchronous_commit=off" }), "synchronous_commit is off",
		},
	} {
		for _, command := range []string{"serve", "migrate"} {
			if command == "migrate" && name == "unsafe setting" {
				continue // a schema can be made by whoever has strange settings
			}
			t.Run(name+", "+command, func(t *testing.T) {
				t.Parallel()
				var out, errs bytes.Buffer
				args := []string{command, "--server.addr=127.0.0.1:0", "--admin.addr=127.0.0.1:0", "--postgres.state-dir=" + t.TempDir()}
				if code := lockserver().Run(args, postgres(test.url, "").env, &out, &errs, nil); code != program.ExitFailed {
					t.Errorf("exit code %d, want %d", code, program.ExitFailed)
				}
				text := errs.String()
				if strings.Count(text, "\n") != 1 || !strings.HasPrefix(text, "lockserver: ") || !strings.Contains(text, test.says) || out.Len() > 0 {
					t.Errorf("it says %q and %q, want one line that names %q", out.String(), text, test.says)
				}
				g.check(t, "output", text)
			})
		}
	}
}

func TestMigrateMakesTheSchemaAndEnds(t *testing.T) {
	t.Parallel()
	g := newGuarded(t)
	at := postgres(g.url.String(), t.TempDir())
	for range 2 {
		var out, errs bytes.Buffer
		if code := lockserver().Run([]string{"migrate"}, at.env, &out, &errs, nil); code != program.ExitOK || errs.Len() > 0 {
			t.Fatalf("exit code %d: %s", code, errs.String())
		}
		if want := "lockserver: the schema in PostgreSQL at " + g.url.Host + g.url.Path + " is up to date\n"; out.String() != want {
			t.Errorf("it says %q, want %q", out.String(), want)
		}
	}
	p := at.launch(t)
	p.acquire(t, p.open(t), "demo", "r1")
}

// TestASignalEndsAMigration takes the place of a database that says nothing. There is one connection to it: to end waits for all that
// are being made.
func TestASignalEndsAMigration(t *testing.T) {
	t.Parallel()
	listener, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = listener.Close() }()
	signals, accepted := make(chan os.Signal, 1), make(chan int)
	go func() {
		n := 0
		for ; ; n++ {
			conn, err := listener.Accept()
			if err != nil {
				break
			}
			defer func() { _ = conn.Close() }()
			select {
			case signals <- syscall.SIGTERM:
			default: // it is one already
			}
		}
		accepted <- n
	}()
	var out, errs bytes.Buffer
	address := "postgres://app@" + listener.Addr().String() + "/locks?sslmode=disable&connect_timeout=3600"
	if code := lockserver().Run([]string{"migrate"}, postgres(address, "").env, &out, &errs, signals); code != program.ExitFailed {
		t.Errorf("exit code %d, want %d: %s", code, program.ExitFailed, out.String())
	}
	_ = listener.Close()
	if n := <-accepted; n != 1 {
		t.Errorf("%d connections were made, want 1", n)
	}
}
