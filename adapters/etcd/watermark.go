package etcd

import (
	"context"
	"fmt"
	"sync"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/fencelock/fencelock/core/lock"
	mark "github.com/fencelock/fencelock/core/watermark"
)

// watermark is the highest that this Store has seen of the store's revisions. A store that
// answers below it has gone back in time, as after the restore of an old snapshot, and would
// give tokens twice: then no more grants are made until an operator raises the floor.
type watermark struct {
	store *Store
	path  string
	// file holds the highest token, set by open. Notes are made under the mutex, so that rev and token go together.
	file *mark.File

	mu  sync.Mutex
	rev int64
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
	file, err := mark.Open(w.path)
	if err != nil {
		return err
	}
	w.file = file
	noted := file.Highest() // before the store is asked, since its answer counts
	e, rev, err := w.ask(ctx)
	if err != nil {
		return err
	}
	if now := e.token(rev); now < noted {
		w.mu.Lock()
		w.stop(e, fmt.Errorf("the store is at token %d, this server has seen %d", now, noted))
		w.mu.Unlock()
	}
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
func (w *watermark) highest() lock.Token { return w.file.Highest() }

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
	w.file.Note(e.token(rev))
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
	if w.unsafe != nil && (e == w.since || e.token(rev) < w.file.Highest()) {
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
	w.unsafe, w.rev = nil, e.rev
	w.file.Note(e.token(e.rev))
}

// keep writes the file until the Store ends.
func (w *watermark) keep() {
	w.file.Keep(w.store.life, func(err error) {
		w.store.report(Incident{Kind: WatermarkFailed, Err: err})
	})
}

// save writes the file if it would change.
func (w *watermark) save() error { return w.file.Save() }
