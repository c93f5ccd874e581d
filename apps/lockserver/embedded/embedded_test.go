package embedded_test

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/fencelock/fencelock/apps/lockserver/embedded"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m)
}

func start(t *testing.T, dir string) *embedded.Etcd {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	e, err := embedded.Start(ctx, dir, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(e.Close)
	return e
}

// put writes the value of the key "a".
func put(t *testing.T, e *embedded.Etcd, value string) (revision int64) {
	t.Helper()
	resp, err := e.Client().Put(t.Context(), "a", value)
	if err != nil {
		t.Fatal(err)
	}
	return resp.Header.GetRevision()
}

func get(t *testing.T, e *embedded.Etcd) string {
	t.Helper()
	resp, err := e.Client().Get(t.Context(), "a")
	if err != nil {
		t.Fatal(err)
	}
	if len(resp.Kvs) == 0 {
		return ""
	}
	return string(resp.Kvs[0].GetValue())
}

func TestWhatWasWrittenIsThereAfterAStop(t *testing.T) {
	dir := t.TempDir()
	first := start(t, dir)
	before := put(t, first, "1")
	first.Close()
	second := start(t, dir)
	if got := get(t, second); got != "1" {
		t.Errorf("a = %q after a restart, want 1", got)
	}
	if after := put(t, second, "2"); after <= before {
		t.Errorf("revision %d after %d: it must rise", after, before)
	}
}

func TestTwoDirectoriesSideBySide(t *testing.T) {
	first, second := start(t, t.TempDir()), start(t, t.TempDir())
	put(t, first, "1")
	put(t, second, "2")
	if got := get(t, first); got != "1" {
		t.Errorf("first store has a = %q, want its own 1", got)
	}
}

func TestADirectoryBelongsToOneProcess(t *testing.T) {
	dir := t.TempDir()
	first := start(t, dir)
	_, err := embedded.Start(t.Context(), dir, slog.New(slog.DiscardHandler))
	if !errors.Is(err, embedded.ErrInUse) {
		t.Fatalf("second start in one directory: %v, want ErrInUse", err)
	}
	if strings.ContainsRune(err.Error(), '\n') || !strings.Contains(err.Error(), dir) {
		t.Errorf("the error must be one line that names the directory: %q", err)
	}
	first.Close()
	start(t, dir)
}

func TestNothingListens(t *testing.T) {
	before := listening(t)
	start(t, t.TempDir())
	if after := listening(t); after > before {
		t.Errorf("%d listening sockets, %d before the start: the store must not be reachable", after, before)
	}
}

// listening counts this process's listening sockets of any family.
func listening(t *testing.T) int {
	t.Helper()
	own := map[string]bool{}
	fds, err := filepath.Glob("/proc/self/fd/*")
	if err != nil {
		t.Fatal(err)
	}
	for _, fd := range fds {
		if target, err := os.Readlink(fd); err == nil && strings.HasPrefix(target, "socket:[") {
			own[strings.TrimSuffix(strings.TrimPrefix(target, "socket:["), "]")] = true
		}
	}
	n := 0
	for _, table := range []struct {
		file          string
		state, inode  int
		listeningMark string
	}{
		{"/proc/self/net/tcp", 3, 9, "0A"},
		{"/proc/self/net/tcp6", 3, 9, "0A"},
		{"/proc/self/net/unix", 3, 6, "00010000"},
	} {
		data, err := os.ReadFile(table.file)
		if errors.Is(err, os.ErrNotExist) {
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(data)) {
			f := strings.Fields(line)
			if len(f) > table.inode && f[table.state] == table.listeningMark && own[f[table.inode]] {
				n++
			}
		}
	}
	return n
}

func TestTheDirectoryIsPrivate(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "data")
	start(t, dir)
	for _, d := range []string{dir, filepath.Join(dir, "etcd")} {
		info, err := os.Stat(d)
		if err != nil {
			t.Fatal(err)
		}
		if info.Mode().Perm() != 0o700 {
			t.Errorf("%s has mode %o, want 0700", d, info.Mode().Perm())
		}
	}
}
