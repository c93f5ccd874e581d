package testenv

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestURLOfPostgresInTheEnvironmentComesFirst(t *testing.T) {
	t.Setenv(envWay, "")
	t.Setenv(envPostgres, "postgres://role@127.0.0.1:1/postgres")
	server, started, err := findPostgres()
	if err != nil || server.URL != "postgres://role@127.0.0.1:1/postgres" || started != nil {
		t.Fatalf("got %v, %v and %v", server, started, err)
	}
}

func TestForcedURLOfPostgresWithoutOneFails(t *testing.T) {
	t.Setenv(envWay, wayAddress)
	t.Setenv(envPostgres, "")
	if server, _, err := findPostgres(); err == nil || !strings.Contains(err.Error(), envPostgres) {
		t.Fatalf("got %v and %v, want an error that names %s", server, err, envPostgres)
	}
}

func TestSettingsThatCannotBeMeantAreRefused(t *testing.T) {
	cases := []struct{ name, value string }{
		{envPostgresVersion, "13"},
		{envPostgresVersion, "19"},
		{envPostgresVersion, "15.3"},
		{envPostgres, "127.0.0.1:5432"},
		{envPostgres, "host=127.0.0.1 dbname=postgres"},
		{envPostgres, "http://127.0.0.1:5432"},
	}
	for _, c := range cases {
		t.Run(c.name+"="+c.value, func(t *testing.T) {
			t.Setenv(c.name, c.value)
			if server, _, err := findPostgres(); err == nil || !strings.Contains(err.Error(), c.name) {
				t.Fatalf("got %v and %v, want an error that names the variable", server, err)
			}
		})
	}
}

func TestVersionChoosesTheImage(t *testing.T) {
	t.Parallel()
	p := newPostgres(nil)
	if built, official := p.images("18"); built != "fencelock/postgres-test:18" || official[0] != "postgres:18" {
		t.Fatalf("images %s and %v, want those of 18", built, official)
	}
	if built, _ := p.images(""); built != "fencelock/postgres-test:"+PostgresVersion {
		t.Fatalf("image %s, want that of %s", built, PostgresVersion)
	}
}

func TestVersionChoosesThePrograms(t *testing.T) {
	t.Parallel()
	var folders []string
	for _, version := range []string{"9.6.24", "15.18 (Debian 15.18-0+deb12u1)", "16.1", "18beta2"} {
		dir := t.TempDir()
		script(t, filepath.Join(dir, "initdb"), "exit 0")
		script(t, filepath.Join(dir, "postgres"), "echo 'postgres (PostgreSQL) "+version+"'")
		folders = append(folders, dir)
	}
	broken := t.TempDir()
	script(t, filepath.Join(broken, "initdb"), "exit 0")
	script(t, filepath.Join(broken, "postgres"), "exit 1")
	all := append([]string{broken, t.TempDir()}, folders...)
	cases := []struct {
		name, version string
		folders       []string
		want          string // empty: refused
	}{
		{"the newest, also one that is not released", "", all, folders[3]},
		{"the one that is asked for", "15", all, folders[1]},
		{"one that is not there", "17", all, ""},
		{"only an old one", "", folders[:1], ""},
		{"none", "", []string{broken}, ""},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			got, err := findPostgresPrograms(t.Context(), c.version, c.folders)
			if got != c.want || (err == nil) != (c.want != "") {
				t.Fatalf("found %q and %v, want %q", got, err, c.want)
			}
		})
	}
}

func script(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte("#!/bin/sh\n"+text+"\n"), 0o700); err != nil {
		t.Fatal(err)
	}
}

func TestMissingPoolerSaysWhatToInstall(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	if path, err := findBouncer(nil); err == nil || !strings.Contains(err.Error(), "apt-get install pgbouncer") {
		t.Fatalf("got %q and %v, want an error that says what to install", path, err)
	}
}

func TestDockerStoppedFallsBackToALocalPostgres(t *testing.T) {
	t.Setenv(envWay, "")
	t.Setenv("DOCKER_HOST", "unix:///nonexistent/docker.sock")
	h, err := launch(t.Context(), settings{}, newPostgres(nil))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = h.remove() })
	if _, local := h.(*process); !local {
		t.Fatalf("got a %T, want a local process", h)
	}
}

// A killed server can no longer tidy up itself.
func TestNothingIsLeftOfAKilledPostgres(t *testing.T) {
	t.Setenv(envWay, wayLocal)
	h, err := launch(t.Context(), readSettings(""), newPostgres(nil))
	if err != nil {
		t.Fatal(err)
	}
	p := h.(*process)
	text, err := os.ReadFile(filepath.Join(p.dir, "data", "postmaster.pid"))
	if err != nil {
		t.Fatal(err)
	}
	memory := strings.Fields(strings.Split(string(text), "\n")[6])[1]
	if err := errors.Join(h.kill(), h.remove()); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(p.dir); !errors.Is(err, os.ErrNotExist) {
		t.Fatalf("its folder is there: %v", err)
	}
	// A system without this file has no list to look at.
	segments, _ := os.ReadFile("/proc/sysvipc/shm")
	for line := range strings.SplitSeq(string(segments), "\n") {
		if fields := strings.Fields(line); len(fields) > 1 && fields[1] == memory {
			t.Fatalf("its shared memory is there: %s", line)
		}
	}
}

// The watcher does this when the test process is gone: nobody has stopped the server then.
func TestWatcherEndsTheServerThatRuns(t *testing.T) {
	t.Setenv(envWay, wayLocal)
	h, err := launch(t.Context(), readSettings(""), newPostgres(nil))
	if err != nil {
		t.Fatal(err)
	}
	p := h.(*process)
	running := p.running
	if err := p.watcher.stop(); err != nil {
		t.Fatal(err)
	}
	// At once: one whose folder is gone ends by itself, but later.
	if server, _, err := running.family(); err != nil || server.state != 'Z' {
		t.Fatalf("the watcher has done its work, the server is in state %c (%v)", server.state, err)
	}
	if _, err := os.Stat(p.dir); !errors.Is(err, os.ErrNotExist) {
		t.Fatalf("its folder is there: %v", err)
	}
}
