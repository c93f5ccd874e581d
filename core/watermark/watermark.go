package watermark

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/fencelock/fencelock/core/lock"
)

// saveEvery is how often [File.Keep] writes at most.
const saveEvery = time.Second

// absent is less than any token: a file that is not there yet differs from all that it could hold.
const absent lock.Token = -1

// File is the highest token seen. Its methods are safe for concurrent use.
type File struct {
	// path is empty where the mark is kept in memory only.
	path string

	mu      sync.Mutex
	highest lock.Token

	// saving is held while the file is written: an older mark must not come to lie over a newer one.
	saving sync.Mutex
	// saved is what the file holds.
	saved lock.Token
}

// Open reads the file, which need not be there yet, though its folder must for [File.Save]. A file that cannot be
// understood is an error: going on without it could give tokens twice. An empty path means memory only.
func Open(path string) (*File, error) {
	f := &File{path: path, saved: absent}
	if path == "" {
		return f, nil
	}
	text, err := os.ReadFile(path) //nolint:gosec // The path is the operator's configuration.
	if errors.Is(err, fs.ErrNotExist) {
		return f, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read watermark: %w", err)
	}
	token, err := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64)
	if err != nil || token < 0 {
		return nil, fmt.Errorf("read watermark: %s does not hold a token", path)
	}
	f.highest, f.saved = lock.Token(token), lock.Token(token)
	return f, nil
}

// Highest returns the highest token noted so far, here or in the file; 0 if there is none.
func (f *File) Highest() lock.Token {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.highest
}

// Note raises the mark to a token that was seen. It never lowers it, and does not wait for the file.
func (f *File) Note(token lock.Token) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.highest = max(f.highest, token)
}

// Save writes the file if that would change it. Once it returns nil, all that was noted before the call
// survives a crash of the machine. After an error the next Save tries again.
func (f *File) Save() error {
	if f.path == "" {
		return nil
	}
	f.saving.Lock()
	defer f.saving.Unlock()
	token := f.Highest()
	if token <= f.saved {
		return nil
	}
	if err := write(f.path, token); err != nil {
		return err
	}
	f.saved = token
	return nil
}

// Keep saves once a second until ctx ends, and reports what fails. What is noted after its last
// save is for a [File.Save] of the caller. In memory only it returns at once.
func (f *File) Keep(ctx context.Context, report func(error)) {
	if f.path == "" {
		return
	}
	tick := time.NewTicker(saveEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			if err := f.Save(); err != nil {
				report(err)
			}
		}
	}
}

// write replaces a file in one step that survives a crash of the machine.
func write(path string, token lock.Token) error {
	dir, err := os.Open(filepath.Dir(path))
	if err != nil {
		return fmt.Errorf("write watermark: %w", err)
	}
	defer dir.Close()
	file, err := os.CreateTemp(dir.Name(), ".watermark-*")
	if err != nil {
		return fmt.Errorf("write watermark: %w", err)
	}
	_, err = fmt.Fprintln(file, int64(token))
	err = errors.Join(err, file.Sync(), file.Close())
	if err == nil {
		err = os.Rename(file.Name(), path)
	}
	if err != nil {
		return fmt.Errorf("write watermark: %w", errors.Join(err, os.Remove(file.Name())))
	}
	if err := dir.Sync(); err != nil { // without it the new name could be lost
		return fmt.Errorf("write watermark: %w", err)
	}
	return nil
}
