package postgres

import (
	"context"
	"time"

	"github.com/fencelock/fencelock/core/lock"
)

const (
	// pollEvery is the mean pause between two looks at the tables where nothing can be heard.
	pollEvery = 250 * time.Millisecond
	// lateActs is how many numbers behind the newest act an act may still come to light: numbers are given before acts are done.
	lateActs = 64
)

// poll finds by looking what a listener would hear: keys that became free while somebody waits for them, and what operators
// did. Sessions that ended and leases that lapsed show in the keys; their clients find out by themselves.
func (s *Store) poll() {
	s.work.Go(s.feed.run)
	p := poller{store: s, told: map[int64]bool{}}
	for begun := false; ; {
		notices, err := p.look()
		if err == nil && !begun {
			begun, notices = true, nil // what was done before the first look is no news
			s.inPlace()
		}
		for _, n := range notices {
			s.heed(n)
		}
		if !s.rest(jitter(pollEvery)) {
			return
		}
	}
}

// poller remembers which acts it has told of.
type poller struct {
	store *Store
	told  map[int64]bool
	last  int64
}

// look returns the news since the last look.
func (p *poller) look() ([]notice, error) {
	ctx, cancel := p.store.call(p.store.life)
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
 WHERE r.id > coalesce(nullif($1::bigint, 0), (SELECT max(x.id) FROM fencelock.lock_revocation x)) - $2
 ORDER BY r.id`, p.last, lateActs)
	if err != nil {
		return nil, err
	}
	var found []notice
	for _, r := range rows {
		if !p.told[r.ID] {
			found = append(found, notice{Kind: noticeRevoked, Revocation: r.ID})
		}
		p.told[r.ID], p.last = true, max(p.last, r.ID)
	}
	for id := range p.told {
		if id <= p.last-lateActs {
			delete(p.told, id)
		}
	}
	return found, nil
}

// notHeld finds which of the keys $4, $5 nobody holds.
var notHeld = `
SELECT w.namespace, w.key
  FROM unnest($4::text[], $5::text[]) AS w(namespace, key) CROSS JOIN fencelock.lock_meta m
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
