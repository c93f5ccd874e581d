package etcd

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

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/fencelock/fencelock/core/lock"
)

// saveEvery is how often the watermark file is written at most.
const saveEvery = time.Second

// watermark is the highest that this Store has seen of the store's revisions. A store that
// answers below it has gone back in time, as after the restore of an old snapshot, and would
// give tokens twice: then no more grants are made until an operator raises the floor.
type watermark struct {
	store *Store
	path  string

	mu    sync.Mutex
	rev   int64
	token lock.Token
	// saved is what the file holds.
	saved lock.Token
	// unsafe is not nil while grants are stopped; since is the epoch it began in.
	unsafe *lock.Error
	since  epoch
	// turned is closed, and replaced, where the order of revisions may have begun anew.
	turned chan struct{}
}

func newWatermark(s *Store, path string) *watermark {
	return &watermark{store: s, path: path, turned: make(chan struct{})}
}

// turn returns a channel that is closed when the store has gone back, or was made safe again. Watches of
// before must end then: the client library would resume them where the store has not been yet.
func (w *watermark) turn() <-chan struct{} {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.turned
}

// turnOver closes what turn has returned. The caller holds the mutex.
func (w *watermark) turnOver() {
	close(w.turned)
	w.turned = make(chan struct{})
}

// shown notes a revision that a watch has shown; no linearizable answer can be below it any more.
func (w *watermark) shown(rev int64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.rev = max(w.rev, rev)
}

// open reads the file and compares it with the store.
func (w *watermark) open(ctx context.Context) error {
	noted, err := readMark(w.path)
	if err != nil {
		return err
	}
	e, rev, err := w.ask(ctx)
	if err != nil {
		return err
	}
	w.mu.Lock()
	w.saved, w.token = noted, max(w.token, noted)
	if now := e.token(rev); now < noted {
		w.stop(e, fmt.Errorf("the store is at token %d, this server has seen %d", now, noted))
	}
	w.mu.Unlock()
	return w.save() // a folder that cannot be written is found out now, not after a crash
}

// ask reads the epoch and the store's revision.
func (w *watermark) ask(ctx context.Context) (epoch, int64, error) {
	resp, err := w.store.fetch(ctx, clientv3.OpGet(w.store.keys.meta()))
	if err != nil {
		return epoch{}, 0, err
	}
	e, err := decodeEpoch(resp.Responses[0].GetResponseRange().GetKvs())
	if err != nil {
		return epoch{}, 0, err
	}
	w.store.learn(e)
	return e, resp.Header.GetRevision(), nil
}

// seen is the revision that a linearizable answer to a call sent now cannot be below.
func (w *watermark) seen() int64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.rev
}

// highest is the highest token that this Store knows the store could have given.
func (w *watermark) highest() lock.Token {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.token
}

// answered notes the revision of a linearizable answer; before is what [watermark.seen]
// returned before the call was sent.
func (w *watermark) answered(before, rev int64) {
	e := *w.store.epoch.Load()
	w.mu.Lock()
	defer w.mu.Unlock()
	if rev < before && w.unsafe == nil {
		w.stop(e, fmt.Errorf("the store went back from revision %d to %d", before, rev))
	}
	w.rev = max(w.rev, rev)
	w.token = max(w.token, e.token(rev))
}

// stop stops grants. The caller holds the mutex.
func (w *watermark) stop(e epoch, cause error) {
	w.since = e
	w.turnOver()
	w.unsafe = &lock.Error{
		Code: lock.CodeUnsafeStore,
		Message: "the store went back in time; grants are stopped until the token floor is raised " +
			"above every fence in use",
		Cause: cause,
	}
	w.store.report(Incident{Kind: StoreUnsafe, Err: cause})
}

// mayGrant returns [lock.ErrUnsafeStore] while grants are stopped. It sees where
// another server has raised the floor high enough for this one.
func (w *watermark) mayGrant(ctx context.Context) error {
	stopped := w.stopped()
	if stopped == nil {
		return nil
	}
	e, rev, err := w.ask(ctx)
	if err != nil {
		return err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.unsafe != nil && (e == w.since || e.token(rev) < w.token) {
		return w.unsafe
	}
	w.unsafe, w.rev = nil, rev
	w.turnOver()
	return nil
}

func (w *watermark) stopped() *lock.Error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.unsafe
}

// raised ends the stop: every further token is above all that this Store has seen.
func (w *watermark) raised(e epoch) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.turnOver()
	w.unsafe, w.rev, w.token = nil, e.rev, max(w.token, e.token(e.rev))
}

// keep writes the file until the Store ends.
func (w *watermark) keep() {
	if w.path == "" {
		return
	}
	tick := time.NewTicker(saveEvery)
	defer tick.Stop()
	for {
		select {
		case <-w.store.life.Done():
			return
		case <-tick.C:
			if err := w.save(); err != nil {
				w.store.report(Incident{Kind: WatermarkFailed, Err: err})
			}
		}
	}
}

// save writes the file if it would change.
func (w *watermark) save() error {
	w.mu.Lock()
	token, saved := w.token, w.saved
	w.mu.Unlock()
	if w.path == "" || token <= saved {
		return nil
	}
	if err := writeMark(w.path, token); err != nil {
		return err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.saved = token
	return nil
}

// readMark returns 0 where there is no file yet. A file that cannot be
// understood is an error: going on without it could give tokens twice.
func readMark(path string) (lock.Token, error) {
	if path == "" {
		return 0, nil
	}
	text, err := os.ReadFile(path) //nolint:gosec // The path is the operator's configuration.
	if errors.Is(err, fs.ErrNotExist) {
		return 0, nil
	}
	if err != nil {
		return 0, fmt.Errorf("read watermark: %w", err)
	}
	token, err := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64)
	if err != nil || token < 0 {
		return 0, fmt.Errorf("read watermark: %s does not hold a token", path)
	}
	return lock.Token(token), nil
}

// writeMark replaces the file in one step that survives a crash of the machine.
func writeMark(path string, token lock.Token) error {
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
	if err := dir.Sync(); err != nil {
		return fmt.Errorf("write watermark: %w", err)
	}
	return nil
}
