package postgres

import (
	"context"
	"fmt"
	"sync"

	"github.com/fencelock/fencelock/core/lock"
	mark "github.com/fencelock/fencelock/core/watermark"
)

// lastToken is the last token that the database gave; 0 before the first.
//
//nolint:gosec // Fencing tokens are no credentials.
const lastToken = "(SELECT CASE WHEN q.is_called THEN q.last_value ELSE 0 END FROM fencelock.fencing_token_seq q)"

// guard remembers the highest token that this Store has seen. A database that would give it again has gone back in time, as
// after the restore of an old backup: then no more grants are made until an operator raises the floor.
type guard struct {
	store *Store
	// file holds the highest token.
	file *mark.File

	mu sync.Mutex
	// unsafe is not nil while grants are stopped.
	unsafe *lock.Error
	// shown is the last token that the database showed last, whoever got it. It counts as seen once the database shows it again
	// later: a crash may still undo one that was given to a grant which was not answered.
	shown lock.Token
}

// newGuard reads the file and compares it with the database.
func newGuard(ctx context.Context, s *Store, path string) (*guard, error) {
	file, err := mark.Open(path)
	if err != nil {
		return nil, err
	}
	g := &guard{store: s, file: file}
	last, floor, err := g.ask(ctx)
	if err != nil {
		return nil, err
	}
	_ = g.judge(file.Highest(), last, floor) // no error of a start: all but grants goes on
	return g, file.Save()                    // a folder that cannot be written is found out now, not after a crash
}

// ask reads the last token and the floor.
func (g *guard) ask(ctx context.Context) (last, floor int64, err error) {
	ctx, cancel := g.store.call(ctx)
	defer cancel()
	err = g.store.pools.work.QueryRow(ctx, "SELECT "+lastToken+", m.floor FROM fencelock.lock_meta m").Scan(&last, &floor)
	return last, floor, translate(err, reads)
}

// seen is the highest token that this Store has seen: the database may only give higher ones.
func (g *guard) seen() lock.Token { return g.file.Highest() }

// granted notes the token of a grant.
func (g *guard) granted(token lock.Token) { g.file.Note(token) }

// mayGrant returns [lock.ErrUnsafeStore] while grants are stopped. It sees where any server has
// raised the floor high enough for this one.
func (g *guard) mayGrant(ctx context.Context) error {
	if g.stopped() == nil {
		return nil
	}
	before := g.seen()
	last, floor, err := g.ask(ctx)
	if err != nil {
		return err
	}
	return g.judge(before, last, floor)
}

// wentBack stops grants, since the database was about to give a token that was given before.
func (g *guard) wentBack() error {
	return g.stop(fmt.Errorf("the store is about to give a token again; this server has seen %d", g.seen()))
}

// judge stops grants where the last token is below what was seen before the question was sent. It lets them go on where the floor
// is not below what was seen since: all that could have been given twice is condemned then. That the tokens have passed what was seen
// does not suffice; other servers may have given some of them again.
func (g *guard) judge(before lock.Token, last, floor int64) error {
	if lock.Token(last) < before {
		return g.stop(fmt.Errorf("the store is at token %d, this server has seen %d", last, before))
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.unsafe != nil && lock.Token(floor) >= g.seen() {
		g.unsafe = nil
	}
	if g.unsafe != nil {
		return g.unsafe
	}
	g.file.Note(min(g.shown, lock.Token(last)))
	g.shown = lock.Token(last)
	return nil
}

func (g *guard) stop(cause error) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.unsafe == nil {
		g.unsafe = &lock.Error{
			Code: lock.CodeUnsafeStore,
			Message: "the store went back in time; grants are stopped until the token floor is raised " +
				"above every fence in use",
			Cause: cause,
		}
		g.store.report(Incident{Kind: StoreUnsafe, Err: cause})
	}
	return g.unsafe
}

func (g *guard) stopped() *lock.Error {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.unsafe
}

// raised ends the stop: every further token is above this one, and so above all that this Store has seen.
func (g *guard) raised(token lock.Token) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.unsafe = nil
	g.file.Note(token)
}

// keep writes the file until the Store ends.
func (g *guard) keep() {
	g.file.Keep(g.store.life, func(err error) {
		g.store.report(Incident{Kind: WatermarkFailed, Err: err})
	})
}

// save writes the file if it would change.
func (g *guard) save() error { return g.file.Save() }
