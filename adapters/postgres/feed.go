package postgres

import (
	"context"
	"slices"
	"sync"

	corefeed "github.com/fencelock/fencelock/core/feed"
	"github.com/fencelock/fencelock/core/lock"
	"github.com/fencelock/fencelock/core/port"
)

const (
	// maxAsked is how many notices may wait to be looked up; what comes then is lost.
	maxAsked = 8192
	// askBatch is how many are looked up at once.
	askBatch = 512
)

// feed tells subscribers of what ended. Notices name rows, not secrets, and anybody may send one; so it looks
// them up, in order, away from the listener.
//
// For the waiters it finds the keys of a session that ended: one that was handed to that session, or taken over
// by it, was never seen with it here.
type feed struct {
	*corefeed.Feed

	store *Store

	mu     sync.Mutex
	asked  []notice
	missed bool
	// more has a value while something was asked.
	more chan struct{}
}

func newFeed(s *Store) *feed {
	return &feed{Feed: corefeed.New(), store: s, more: make(chan struct{}, 1)}
}

// Subscribe implements port.Feed.
func (s *Store) Subscribe() port.Subscription { return s.feed.Subscribe() }

// endAll ends every subscription, present and future.
func (f *feed) endAll() { f.End() }

// ask has a notice looked up, unless that is of use to nobody.
func (f *feed) ask(n notice) {
	waiters := n.Kind != noticeLapsed && f.store.waiters.crowded()
	if !waiters && !f.Heard() {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.asked) < maxAsked {
		f.asked = append(f.asked, n)
	} else {
		f.missed = true
	}
	select {
	case f.more <- struct{}{}:
	default:
	}
}

// run looks notices up until the Store ends.
func (f *feed) run() {
	for {
		select {
		case <-f.store.life.Done():
			return
		case <-f.more:
		}
		for f.store.life.Err() == nil {
			batch, missed := f.take()
			if len(batch) == 0 && !missed {
				break
			}
			if err := f.tell(batch); err != nil || missed {
				f.store.waiters.wakeAll()
				f.Tell(port.FeedEvent{Kind: port.Resync})
			}
		}
	}
}

// take takes a batch; missed says that others were lost behind it.
func (f *feed) take() (batch []notice, missed bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	n := min(askBatch, len(f.asked))
	batch, f.asked = f.asked[:n:n], f.asked[n:]
	if len(f.asked) == 0 {
		f.asked, missed, f.missed = nil, f.missed, false
	}
	return batch, missed
}

// tell looks a batch up and tells of it.
func (f *feed) tell(batch []notice) error {
	ctx, cancel := f.store.call(f.store.life)
	defer cancel()
	var a answers
	var err error
	if a.deaths, err = f.deaths(ctx, batch); err != nil {
		return err
	}
	if a.lapses, err = f.lapses(ctx, batch); err != nil {
		return err
	}
	if a.acts, err = f.acts(ctx, batch); err != nil {
		return err
	}
	unknown := false
	for _, n := range batch {
		ev, known := a.event(n)
		if known && ev.Kind == 0 {
			continue // it is not so
		}
		if unknown = unknown || !known; known {
			f.Tell(ev)
		}
	}
	if unknown {
		f.Tell(port.FeedEvent{Kind: port.Resync})
	}
	return nil
}

// answers are what the store says to notices: nothing where their rows are gone, an event without a kind where it is not so.
type answers struct {
	// deaths and acts are by number.
	deaths, acts map[int64]port.FeedEvent
	lapses       map[notice]port.FeedEvent
}

func (a *answers) event(n notice) (ev port.FeedEvent, known bool) {
	switch n.Kind {
	case noticeSessionOver:
		ev, known = a.deaths[n.Session]
	case noticeRevoked:
		ev, known = a.acts[n.Revocation]
	case noticeLapsed:
		ev, known = a.lapses[n]
	}
	return ev, known
}

// of returns the notices of a kind.
func of(batch []notice, kind string) []notice {
	return slices.DeleteFunc(slices.Clone(batch), func(n notice) bool { return n.Kind != kind })
}

// numbers returns one column of notices.
func numbers(notices []notice, column func(notice) int64) []int64 {
	found := make([]int64, len(notices))
	for i, n := range notices {
		found[i] = column(n)
	}
	return found
}

func sessionOf(n notice) int64    { return n.Session }
func tokenOf(n notice) int64      { return n.Token }
func revocationOf(n notice) int64 { return n.Revocation }

// deaths finds the sessions that ended, and wakes who waits for what they held.
func (f *feed) deaths(ctx context.Context, batch []notice) (map[int64]port.FeedEvent, error) {
	type row struct {
		ID             int64
		Secret         *string
		Ended          bool
		Namespace, Key *string
	}
	found := map[int64]port.FeedEvent{}
	if batch = of(batch, noticeSessionOver); len(batch) == 0 {
		return found, nil
	}
	rows, err := list[row](ctx, f.store, `
SELECT n.id, s.secret::text, s.id IS NULL OR s.ended_at IS NOT NULL, e.namespace, e.key
  FROM pg_catalog.unnest($1::bigint[]) AS n(id)
  LEFT JOIN fencelock.lock_session s ON s.id = n.id
  LEFT JOIN fencelock.lock_entry e ON e.session = n.id`, numbers(batch, sessionOf))
	for _, r := range rows {
		if !r.Ended {
			found[r.ID] = port.FeedEvent{}
			continue
		}
		if r.Secret != nil {
			found[r.ID] = port.FeedEvent{Kind: port.SessionOver, Session: sessionID(*r.Secret)}
		}
		if key, err := lock.NewKey(deref(r.Namespace), deref(r.Key)); err == nil {
			f.store.waiters.fire(key)
		}
	}
	return found, err
}

// lapses finds the grants that are said to have lapsed; one that stands with that token has not.
func (f *feed) lapses(ctx context.Context, batch []notice) (map[notice]port.FeedEvent, error) {
	type row struct {
		N      int64
		Secret *string
		Stands bool
	}
	found := map[notice]port.FeedEvent{}
	if batch = of(batch, noticeLapsed); len(batch) == 0 {
		return found, nil
	}
	namespaces, keys := make([]string, len(batch)), make([]string, len(batch))
	for i, n := range batch {
		namespaces[i], keys[i] = n.key.Namespace(), n.key.Name()
	}
	rows, err := list[row](ctx, f.store, `
SELECT l.n, s.secret::text, e.key IS NOT NULL
  FROM ROWS FROM (pg_catalog.unnest($1::text[]), pg_catalog.unnest($2::text[]),
                  pg_catalog.unnest($3::bigint[]), pg_catalog.unnest($4::bigint[]))
       WITH ORDINALITY AS l(namespace, key, session, token, n)
  LEFT JOIN fencelock.lock_session s ON s.id = l.session
  LEFT JOIN fencelock.lock_entry e
    ON e.namespace = l.namespace AND e.key = l.key AND e.token = l.token AND e.session = l.session`,
		namespaces, keys, numbers(batch, sessionOf), numbers(batch, tokenOf))
	for _, r := range rows {
		n := batch[r.N-1]
		switch {
		case r.Stands:
			found[n] = port.FeedEvent{}
		case r.Secret != nil:
			found[n] = port.FeedEvent{
				Kind: port.GrantLapsed, Key: n.key, Session: sessionID(*r.Secret), Token: lock.Token(n.Token),
			}
		}
	}
	return found, err
}

// acts finds what operators did. A raised floor has ended all grants.
func (f *feed) acts(ctx context.Context, batch []notice) (map[int64]port.FeedEvent, error) {
	type row struct {
		ID                     int64
		Namespace, Key, Secret *string
		Token                  *int64
	}
	found := map[int64]port.FeedEvent{}
	if batch = of(batch, noticeRevoked); len(batch) == 0 {
		return found, nil
	}
	rows, err := list[row](ctx, f.store, `
SELECT r.id, r.namespace, r.key, r.previous_session::text, r.previous_token
  FROM fencelock.lock_revocation r WHERE r.id = ANY ($1::bigint[])`, numbers(batch, revocationOf))
	for _, r := range rows {
		if r.Key == nil {
			f.store.waiters.wakeAll()
			found[r.ID] = port.FeedEvent{Kind: port.Resync}
			continue
		}
		if key, err := lock.NewKey(deref(r.Namespace), *r.Key); err == nil {
			found[r.ID] = port.FeedEvent{
				Kind: port.GrantRevoked, Key: key, Session: sessionID(deref(r.Secret)), Token: lock.Token(deref(r.Token)),
			}
		}
	}
	return found, err
}
