package watermark_test

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fencelock/fencelock/core/lock"
	"github.com/fencelock/fencelock/core/watermark"
)

func open(t *testing.T, path string) *watermark.File {
	t.Helper()
	f, err := watermark.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func save(t *testing.T, f *watermark.File) {
	t.Helper()
	if err := f.Save(); err != nil {
		t.Fatal(err)
	}
}

// held returns what the file holds, not by way of Open.
func held(path string) (lock.Token, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return 0, err
	}
	n, err := strconv.ParseInt(strings.TrimSuffix(string(text), "\n"), 10, 64)
	return lock.Token(n), err
}

func holds(t *testing.T, path string, want lock.Token) {
	t.Helper()
	if got, err := held(path); got != want || err != nil {
		t.Errorf("the file holds %d, %v, want %d", got, err, want)
	}
}

func alone(t *testing.T, path string) {
	t.Helper()
	entries, err := os.ReadDir(filepath.Dir(path))
	if err != nil || len(entries) != 1 || entries[0].Name() != filepath.Base(path) {
		t.Errorf("the folder holds %v, %v, want the watermark alone", entries, err)
	}
}

func TestMarkOnlyRises(t *testing.T) {
	t.Parallel()
	for what, path := range map[string]string{"in a file": filepath.Join(t.TempDir(), "watermark"), "in memory": ""} {
		f := open(t, path)
		for _, step := range []struct{ note, want lock.Token }{{0, 0}, {5, 5}, {3, 5}, {-9, 5}, {1 << 62, 1 << 62}, {6, 1 << 62}} {
			f.Note(step.note)
			if got := f.Highest(); got != step.want {
				t.Errorf("%s: %d after a note of %d, want %d", what, got, step.note, step.want)
			}
		}
		save(t, f)
	}
}

func TestMarkOutlivesTheProcess(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "watermark")
	f := open(t, path)
	f.Note(41)
	if _, err := os.Stat(path); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("written before Save: %v", err)
	}
	save(t, f)
	holds(t, path, 41)
	alone(t, path)
	f.Note(42)
	save(t, f)
	again := open(t, path)
	if got := again.Highest(); got != 42 {
		t.Errorf("opened again: %d, want 42", got)
	}
	again.Note(7)
	save(t, again)
	holds(t, path, 42)
	alone(t, path)
}

// TestSaveWritesOnlyChanges: a file that was taken away stays away until there is something new.
func TestSaveWritesOnlyChanges(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "watermark")
	f := open(t, path)
	save(t, f) // shows at once that the folder can be written
	holds(t, path, 0)
	f.Note(5)
	save(t, f)
	again := open(t, path)
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	for _, same := range []*watermark.File{f, again} {
		for _, token := range []lock.Token{0, 4, 5} {
			same.Note(token)
			save(t, same)
		}
		if _, err := os.Stat(path); !errors.Is(err, fs.ErrNotExist) {
			t.Fatalf("written without a change: %v", err)
		}
	}
	f.Note(6)
	save(t, f)
	holds(t, path, 6)
}

func TestOpenRefusesWhatIsNoMark(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for what, text := range map[string]string{
		"no number": "abc", "negative": "-1", "empty": "", "two": "1\n2\n", "a fraction": "1.5", "too large": "9223372036854775808",
	} {
		path := filepath.Join(dir, what)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if f, err := watermark.Open(path); f != nil || err == nil {
			t.Errorf("%s: accepted", what)
		}
	}
	if f, err := watermark.Open(dir); f != nil || err == nil {
		t.Error("a folder: accepted")
	}
	for what, text := range map[string]string{"as written": "7\n", "by hand": " 7", "from elsewhere": "7\r\n"} {
		path := filepath.Join(dir, what)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if f, err := watermark.Open(path); err != nil || f.Highest() != 7 {
			t.Errorf("%s: %v, want 7", what, err)
		}
	}
}

func TestSaveThatFailsIsTriedAgain(t *testing.T) {
	t.Parallel()
	for what, obstacle := range map[string]struct{ put, remove func(path string) error }{
		"the folder is missing": {
			put:    func(string) error { return nil },
			remove: func(path string) error { return os.Mkdir(filepath.Dir(path), 0o700) },
		},
		"a folder is in the way": {
			put:    func(path string) error { return os.MkdirAll(path, 0o700) },
			remove: os.Remove,
		},
	} {
		path := filepath.Join(t.TempDir(), "folder", "watermark")
		f := open(t, path)
		f.Note(5)
		if err := obstacle.put(path); err != nil {
			t.Fatal(err)
		}
		for range 2 {
			if err := f.Save(); err == nil || !strings.HasPrefix(err.Error(), "write watermark: ") {
				t.Errorf("%s: %v", what, err)
			}
		}
		if err := obstacle.remove(path); err != nil {
			t.Fatal(err)
		}
		save(t, f)
		holds(t, path, 5)
		alone(t, path) // what a failed attempt had begun is gone
	}
}

// TestSavesAtOnceKeepTheHighest: the file holds all that was noted before a Save, also where another one is under way.
func TestSavesAtOnceKeepTheHighest(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "watermark")
	f := open(t, path)
	const writers, rounds = 8, 25
	var work sync.WaitGroup
	for writer := range writers {
		work.Go(func() {
			for round := range rounds {
				token := lock.Token(round*writers + writer + 1)
				f.Note(token)
				if err := f.Save(); err != nil {
					t.Error(err)
				}
				if got, err := held(path); got < token || err != nil {
					t.Errorf("the file holds %d, %v, after %d was saved", got, err, token)
				}
			}
		})
	}
	work.Wait()
	holds(t, path, writers*rounds)
	alone(t, path)
}

func TestKeepSavesOnceASecond(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "folder", "watermark")
	synctest.Test(t, func(t *testing.T) {
		f := open(t, path)
		ctx, end := context.WithCancel(t.Context())
		var failures atomic.Int32
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			f.Keep(ctx, func(error) { failures.Add(1) })
		}()
		second := func() {
			time.Sleep(time.Second)
			synctest.Wait()
		}
		f.Note(5)
		second()
		second()
		if n := failures.Load(); n != 2 {
			t.Errorf("%d failures reported in two seconds without a folder", n)
		}
		if err := os.Mkdir(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		second()
		holds(t, path, 5)
		f.Note(6)
		synctest.Wait()
		holds(t, path, 5)
		second()
		holds(t, path, 6)
		if n := failures.Load(); n != 2 {
			t.Errorf("%d failures reported, the folder has been there since the second", n)
		}
		end()
		<-ended
		f.Note(7)
		second()
		holds(t, path, 6)
		save(t, f)
		holds(t, path, 7)
	})
}

func TestMemoryNeedsNoKeeping(t *testing.T) {
	t.Parallel()
	f := open(t, "")
	f.Keep(t.Context(), func(err error) { t.Error(err) }) // returns
	f.Note(5)
	save(t, f)
	if again := open(t, ""); again.Highest() != 0 || f.Highest() != 5 {
		t.Errorf("%d and %d, want 0 and 5", again.Highest(), f.Highest())
	}
}
