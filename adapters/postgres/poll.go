package postgres

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/fencelock/fencelock/core/lock"
	"github.com/fencelock/fencelock/core/port"
)

const (
	// pollEvery is the mean pause between two looks at the tables where nothing can be heard.
	pollEvery = 250 * time.Millisecond
	// lateActs is how many numbers that were passed over are looked for in a row, and lateFor how long: numbers are given before acts
	// are done, and those of acts that fail stay free. No call goes on for so long.
	lateActs, lateFor = 64, time.Minute
)

// poll finds by looking, until ctx ends, what a listener would hear: keys that became free while somebody waits for them, and what
// operators did. Sessions that ended and leases that lapsed show in the keys; their clients find out by themselves.
func (s *Store) poll(ctx context.Context) {
	p := poller{store: s, missing: map[int64]time.Duration{}}
	for begun := false; ; {
		notices, err := p.look(ctx)
		if err == nil && !begun {
			begun = true
			s.inPlace()
		}
		for _, n := range notices {
			s.heed(n)
		}
		if !pause(ctx, jitter(pollEvery)) {
			return
		}
	}
}

// poller remembers which acts it has told of.
type poller struct {
	store *Store
	// begun says that it has looked once; what was done before is no news.
	begun bool
	// last is the highest number of an act, and missing are those below it that were passed over, and when.
	last    int64
	missing map[int64]time.Duration
}

// look returns the news since the last look.
func (p *poller) look(ctx context.Context) ([]notice, error) {
	ctx, cancel := p.store.call(ctx)
	defer cancel()
	acts, err := p.acts(ctx)
	if err != nil {
		return nil, err
	}
	freed, err := p.freed(ctx)
	return append(acts, freed...), err
}

// acts finds acts of operators.
func (p *poller) acts(ctx context.Context) ([]notice, error) {
	type row struct{ ID int64 }
	rows, err := list[row](ctx, p.store, `
SELECT r.id FROM fencelock.lock_revocation r
 WHERE r.id = ANY ($2::bigint[])
    OR r.id > CASE WHEN $1::bigint >= 0 THEN $1 ELSE (SELECT max(x.id) FROM fencelock.lock_revocation x) - $3::bigint END
 ORDER BY r.id`, p.since(), slices.Collect(maps.Keys(p.missing)), lateActs)
	if err != nil {
		return nil, err
	}
	if !p.begun && len(rows) > 0 {
		p.last = max(rows[len(rows)-1].ID-lateActs, 0)
	}
	var found []notice
	now := p.store.clock.elapsed()
	for _, r := range rows {
		p.passOver(r.ID, now)
		found = append(found, notice{Kind: noticeRevoked, Revocation: r.ID})
	}
	maps.DeleteFunc(p.missing, func(_ int64, since time.Duration) bool { return now-since > lateFor })
	if !p.begun {
		p.begun, found = true, nil
	}
	return found, nil
}

// since is the highest number of before; -1 before the first look.
func (p *poller) since() int64 {
	if !p.begun {
		return -1
	}
	return p.last
}

// passOver takes note of an act, and of the numbers below it that are missing.
func (p *poller) passOver(id int64, now time.Duration) {
	delete(p.missing, id)
	if id-p.last > lateActs+1 { // more than are looked for
		p.store.feed.Tell(port.FeedEvent{Kind: port.Resync})
	}
	for late := max(p.last+1, id-lateActs); late < id; late++ {
		p.missing[late] = now
	}
	p.last = max(p.last, id)
}

// notHeld finds which of the keys $4, $5 nobody holds.
var notHeld = `
SELECT w.namespace, w.key
  FROM ROWS FROM (pg_catalog.unnest($4::text[]), pg_catalog.unnest($5::text[])) AS w(namespace, key) CROSS JOIN fencelock.lock_meta m
  LEFT JOIN fencelock.lock_entry e ON e.namespace = w.namespace AND e.key = w.key
  LEFT JOIN fencelock.lock_session h ON h.id = e.session
 WHERE h.id IS NULL OR h.ended_at IS NOT NULL OR e.token <= m.floor OR ` + over("h.renewed_at", "h.expires_at") + `
    OR e.lease IS NOT NULL AND ` + over("e.leased_at", "e.lease_until")

// freed finds keys that somebody waits for and nobody holds.
func (p *poller) freed(ctx context.Context) ([]notice, error) {
	type row struct{ Namespace, Key string }
	keys := p.store.waiters.awaited()
	if len(keys) == 0 {
		return nil, nil
	}
	namespaces, names := make([]string, len(keys)), make([]string, len(keys))
	for i, key := range keys {
		namespaces[i], names[i] = key.Namespace(), key.Name()
	}
	rows, err := list[row](ctx, p.store, notHeld, append(p.store.clock.reading().args(), namespaces, names)...)
	var found []notice
	for _, r := range rows {
		if key, err := lock.NewKey(r.Namespace, r.Key); err == nil {
			found = append(found, notice{Kind: noticeFreed, key: key})
		}
	}
	return found, err
}
