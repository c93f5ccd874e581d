package main

import (
	"bytes"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"

	"github.com/fencelock/fencelock/apps/program"
	"github.com/fencelock/fencelock/contracts/api/fencelock/v1/fencelockv1connect"
)

func TestASecondSignalEndsTheServerAtOnce(t *testing.T) {
	t.Parallel()
	p := launch(t, "--etcd.data-dir="+t.TempDir(), "--server.drain-timeout=10m")
	// A request that is half here is in flight, and holds up the drain.
	conn, err := new(net.Dialer).DialContext(t.Context(), "tcp", strings.TrimPrefix(p.rpc, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	head := "POST " + fencelockv1connect.LockServiceInspectProcedure + " HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n{"
	if _, err := io.WriteString(conn, head); err != nil {
		t.Fatal(err)
	}
	p.open(t) // a round trip later the connection before it has been accepted
	p.terminate(t)
	p.waitForLog(t, `"draining"`)
	p.terminate(t)
	if code := p.exit(t); code != program.ExitFailed {
		t.Errorf("exit code %d, want %d", code, program.ExitFailed)
	}
}

func TestADirectoryInUseIsOneClearLine(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	launch(t, "--etcd.data-dir="+dir)
	second := begin(t, "--etcd.data-dir="+dir)
	if code := second.exit(t); code != program.ExitFailed {
		t.Errorf("exit code %d, want %d", code, program.ExitFailed)
	}
	if text := second.errors.String(); strings.Count(text, "\n") != 1 || !strings.Contains(text, "in use") || !strings.Contains(text, dir) {
		t.Errorf("it says %q, want one line that names %s", text, dir)
	}
}

func TestTwoServersSideBySide(t *testing.T) {
	t.Parallel()
	first, second := launch(t, "--etcd.data-dir="+t.TempDir()), launch(t, "--etcd.data-dir="+t.TempDir())
	first.acquire(t, first.open(t), "demo", "r1")
	second.acquire(t, second.open(t), "demo", "r1")
}

func TestTheReadyLineNamesAddressBackendAndDirectory(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	p := launch(t, "--etcd.data-dir="+dir)
	if !strings.Contains(p.ready, "embedded etcd in "+dir) {
		t.Errorf("ready line %q", p.ready)
	}
	for path, want := range map[string]int{"/healthz": http.StatusOK, "/readyz": http.StatusOK, "/metrics": http.StatusOK, "/debug/pprof/": http.StatusNotFound} {
		response, err := http.Get(p.admin + path)
		if err != nil {
			t.Fatal(err)
		}
		_ = response.Body.Close()
		if response.StatusCode != want {
			t.Errorf("%s: %d, want %d", path, response.StatusCode, want)
		}
	}
}

func TestCommands(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		args []string
		code int
		out  string
		err  string
	}{
		"version":            {args: []string{"version"}, out: program.Version()},
		"version flag":       {args: []string{"--version"}, out: program.Version()},
		"help":               {args: []string{"--help"}, out: "--lock.session.ttl"},
		"config":             {args: []string{"config", "--lock.session.ttl=20s"}, out: "lock.session.ttl: 20s"},
		"unknown command":    {args: []string{"fly"}, code: program.ExitConfig, err: "fly"},
		"URL as command":     {args: []string{"postgres://app:hunter2@db/locks"}, code: program.ExitConfig, err: `unknown command "postgres://xxxxx@db/locks"`},
		"nothing to migrate": {args: []string{"migrate"}, code: program.ExitConfig, err: "lock.backend is etcd"},
		"config with a password": {
			args: []string{"config", "--lock.backend=postgres", "--postgres.url=host=db dbname=locks password='hunter2'"},
			out:  `postgres.url: "host=db dbname=locks password=xxxxx"`,
		},
		"unknown key": {args: []string{"--lock.session.tll=20s"}, code: program.ExitConfig, err: "lock.session.tll"},
		"bad config":  {args: []string{"config", "--lock.session.ttl=1s"}, code: program.ExitConfig, err: "lock.session.ttl"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var out, errs bytes.Buffer
			if code := lockserver().Run(test.args, nil, &out, &errs, nil); code != test.code {
				t.Errorf("exit code %d, want %d", code, test.code)
			}
			if !strings.Contains(out.String(), test.out) || !strings.Contains(errs.String(), test.err) {
				t.Errorf("it says %q and %q", out.String(), errs.String())
			}
			if test.err != "" && strings.Count(errs.String(), "\n") != 1 {
				t.Errorf("it says %q, want one line", errs.String())
			}
		})
	}
}

func TestTheReadyLineShowsTheHostAsConfigured(t *testing.T) {
	t.Parallel()
	p := launch(t, "--etcd.data-dir="+t.TempDir(), "--admin.addr=0.0.0.0:0")
	if !strings.HasPrefix(p.admin, "http://0.0.0.0:") || strings.HasSuffix(p.admin, ":0") {
		t.Errorf("ready line %q", p.ready)
	}
}

func TestAnAddressInUseIsOneClearLine(t *testing.T) {
	t.Parallel()
	listener, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = listener.Close() }()
	p := begin(t, "--etcd.data-dir="+t.TempDir(), "--server.addr="+listener.Addr().String())
	if code := p.exit(t); code != program.ExitFailed {
		t.Errorf("exit code %d, want %d", code, program.ExitFailed)
	}
	if text := p.errors.String(); !strings.Contains(text, "lockserver: listen") {
		t.Errorf("it says %q", text)
	}
}
