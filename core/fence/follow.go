package fence

import (
	"context"
	"errors"
	"iter"
	"maps"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/fencelock/fencelock/core/lock"
)

// DefaultFollowEvery is how long a [Follower] waits between two looks, unless it is told otherwise.
const DefaultFollowEvery = time.Second

const (
	// overlap is how many records without news end a look: one may have been put on record among them, late. It is
	// the size of a page, so that a look without news is one call.
	overlap = 100
	// wholeEvery is how many looks pass between two at all records, which find what came later than that.
	wholeEvery = 300
	// raisePatience bounds the wait for one mark, which a write that is still open may hold.
	raisePatience = 2 * time.Second
)

// Follower raises the marks of resources to the floors of revocations: a holder that an operator has deposed is then
// refused even before the next holder writes. Without it the deposed one is admitted until then.
//
// It is an addition, and nothing else depends on it. A Follower that is not there, or has lost its way to the lock
// service or to the marks, only leaves things as they are without it. It refuses no good token either: every token that
// is granted after a revocation is above the floor, and a mark that is above it already stays as it is.
//
// It believes what the lock service says. Whoever can answer in its place can raise a mark above all tokens.
type Follower struct {
	// Revocations lists what is on record for a namespace at the time of the call, the newest first, such as
	// Client.Revocations of adapters/client. It is not read to its end where that has no news. An error ends it;
	// so does the end of ctx, soon. Required.
	Revocations func(ctx context.Context) iter.Seq2[lock.Revocation, error]
	// Resources names the resources that the lock of a key protects, as their guard calls them; none for a key that protects
	// nothing here. It gets the zero Key for a raised floor, which ended the grants of all keys: the answer may be all
	// resources, or none. It is asked about the same records again and again, so it must be quick. Required.
	Resources func(key lock.Key) []string
	// Marks are those of the guard. Each raise is a step of its own, so they must not be bound to a transaction. Required.
	Marks HighWater
	// Report, if set, is told of each mark that is at its floor or above it now (err is nil), of each that could not be
	// raised, and of each look that failed (then there is no resource). What failed is tried again, but for
	// [lock.ErrInvalid]: there is no such resource. It must not block.
	Report func(resource string, floor lock.Token, err error)
	// Every is how long to wait between two looks, at most; half of it at least. 0 means [DefaultFollowEvery].
	Every time.Duration
}

// Run follows until ctx ends. It looks at once, and begins with all that is on record. From a revocation to the raised mark
// it takes Every and the time of the calls; a write that is still open delays its own mark, and others by two seconds at most.
func (f Follower) Run(ctx context.Context) {
	if f.Every <= 0 {
		f.Every = DefaultFollowEvery
	}
	if f.Report == nil {
		f.Report = func(string, lock.Token, error) {}
	}
	w := following{Follower: f, floors: map[string]lock.Token{}}
	for ctx.Err() == nil {
		w.look(ctx)
		w.raise(ctx)
		f.rest(ctx)
	}
}

// rest waits for the next look. Followers that were started together do not look together.
func (f Follower) rest(ctx context.Context) {
	timer := time.NewTimer(f.Every/2 + rand.N(f.Every/2+1)) //nolint:gosec // jitter is no secret
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}

// following is a Follower on its way.
type following struct {
	Follower

	// floors are the highest that were seen, by resource.
	floors map[string]lock.Token
	// pending are the resources whose marks are not known to be at their floors, in the order in which they are tried.
	pending []string
	// untilWhole is how many looks may still pass before one must see all records.
	untilWhole int
}

// look reads what is new: above what was known before it began. After one that failed, what lies behind the last record that it
// saw is as unknown as it was, though what lies before is not news any more: so the next one must see all.
func (w *following) look(ctx context.Context) {
	whole, quiet := w.untilWhole == 0, 0
	news := map[string]lock.Token{}
	defer w.learn(news)
	for revocation, err := range w.Revocations(ctx) {
		if err != nil {
			w.untilWhole = 0
			w.report(ctx, "", 0, err)
			return
		}
		quiet++
		if w.note(revocation, news) {
			quiet = 0
		}
		if quiet == overlap && !whole {
			break
		}
	}
	if whole {
		w.untilWhole = wholeEvery
	}
	w.untilWhole--
}

// note adds what a record says to the news and reports whether there is any.
func (w *following) note(r lock.Revocation, news map[string]lock.Token) (found bool) {
	for _, resource := range w.Resources(r.Key) {
		if r.Floor > w.floors[resource] {
			news[resource] = max(news[resource], r.Floor)
			found = true
		}
	}
	return found
}

// learn takes over the news of a look. They are tried first.
func (w *following) learn(news map[string]lock.Token) {
	maps.Copy(w.floors, news)
	old := slices.DeleteFunc(w.pending, func(resource string) bool { return news[resource] > 0 })
	w.pending = slices.Concat(slices.Collect(maps.Keys(news)), old)
}

// raise brings the marks to their floors. The rule Above writes nothing where a mark is there already. One at a time:
// marks that are held up must not take all connections from those who write. So that they do not keep news waiting either, it is
// over once they have cost the patience for one, and goes on from there after the next look.
func (w *following) raise(ctx context.Context) {
	began := time.Now()
	for range len(w.pending) {
		resource := w.pending[0]
		w.pending = w.pending[1:]
		floor := w.floors[resource]
		err := w.advance(ctx, resource, floor)
		w.report(ctx, resource, floor, err)
		if err == nil || errors.Is(err, lock.ErrInvalid) {
			continue
		}
		w.pending = append(w.pending, resource)
		if time.Since(began) >= raisePatience {
			return
		}
	}
}

func (w *following) advance(ctx context.Context, resource string, floor lock.Token) error {
	if err := Check(resource, floor, Above); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, raisePatience)
	defer cancel()
	_, err := w.Marks.Advance(ctx, resource, floor, Above)
	return err
}

// report tells nothing of failures that only say that ctx has ended.
func (w *following) report(ctx context.Context, resource string, floor lock.Token, err error) {
	if err == nil || ctx.Err() == nil {
		w.Report(resource, floor, err)
	}
}
