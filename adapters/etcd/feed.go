package etcd

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	corefeed "github.com/fencelock/fencelock/core/feed"
	"github.com/fencelock/fencelock/core/lock"
	"github.com/fencelock/fencelock/core/port"
)

// feed tells subscribers of what ended. It holds two watches, from the first subscription
// on: over session records and leases of grants, deletions only, and over audit records, puts only.
type feed struct {
	*corefeed.Feed

	store *Store
	vigil vigil

	mu   sync.Mutex
	open bool
}

func newFeed(s *Store) *feed { return &feed{Feed: corefeed.New(), store: s} }

// Subscribe implements port.Feed.
func (s *Store) Subscribe() port.Subscription {
	sub := s.feed.Subscribe()
	s.feed.begin()
	return sub
}

// begin opens the watches if they are not open yet.
func (f *feed) begin() {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.open {
		f.open = f.store.spawn(f.run)
	}
}

// run keeps the watches open until the Store ends.
func (f *feed) run() {
	for {
		err := f.watch()
		if f.store.life.Err() != nil {
			return
		}
		f.Pause()
		f.store.report(Incident{Kind: FeedRestarted, Err: err})
		select {
		case <-f.store.life.Done():
			return
		case <-time.After(reopenPause):
		}
	}
}

func (f *feed) watch() error {
	ctx, cancel := context.WithCancel(clientv3.WithRequireLeader(f.store.life))
	defer cancel()
	turned := f.store.watermark.turn()
	f.vigil.begin(f.store.now())
	keys, watcher := f.store.keys, f.store.clients.Watcher
	ends := watcher.Watch(ctx, keys.folder(sessionFolder), clientv3.WithRange(keys.folder(afterCaps)),
		clientv3.WithFilterPut(), clientv3.WithPrevKV(), clientv3.WithCreatedNotify())
	acts := watcher.Watch(ctx, keys.folder(auditFolder), clientv3.WithPrefix(),
		clientv3.WithFilterDelete(), clientv3.WithCreatedNotify())
	for missing := 2; ; {
		var resp clientv3.WatchResponse
		var ok bool
		select {
		case <-ctx.Done(): // a stream that is stuck does not even end
			return errWatchEnded
		case <-turned:
			return errTurned
		case resp, ok = <-ends:
		case resp, ok = <-acts:
		}
		if err := watchErr(resp, ok); err != nil {
			return err
		}
		f.store.watermark.shown(resp.Header.GetRevision())
		if resp.Created {
			missing--
		}
		if missing == 0 {
			f.vigil.shown(resp.Header.GetRevision(), f.store.now())
		}
		if resp.Created && missing == 0 {
			f.Begin()
		}
		if err := f.report(ctx, resp.Events); err != nil {
			return err
		}
	}
}

// report turns changes of the store into events.
func (f *feed) report(ctx context.Context, changes []*clientv3.Event) error {
	var lapses []*lapse
	for _, ev := range changes {
		folder, _ := f.store.keys.split(ev.GetKv().GetKey())
		switch folder {
		case sessionFolder:
			f.Tell(f.death(ev))
		case auditFolder:
			f.Tell(f.act(ev.GetKv()))
		case capFolder:
			if l := f.lapse(ev); l != nil {
				lapses = append(lapses, l)
			}
		}
	}
	return f.confirm(ctx, lapses)
}

// death is the event of a session's end. Who died is only in the value that is gone; where
// etcd cannot bring that any more, everyone has to look.
func (f *feed) death(ev *clientv3.Event) port.FeedEvent {
	if ev.GetPrevKv() == nil {
		return port.FeedEvent{Kind: port.Resync}
	}
	session, err := decodeSession(ev.GetPrevKv())
	if err != nil {
		return port.FeedEvent{Kind: port.Resync}
	}
	f.store.members.forget(session.ID)
	return port.FeedEvent{Kind: port.SessionOver, Session: session.ID}
}

// act is the event of an audit record. One of no key has ended all grants.
func (f *feed) act(kv *mvccpb.KeyValue) port.FeedEvent {
	r, err := decode[auditRecord](kv)
	if err == nil && r.Key != "" {
		if rev, err := r.revocation(0, kv.GetModRevision()); err == nil {
			return port.FeedEvent{
				Kind: port.GrantRevoked, Key: rev.Key, Session: rev.PreviousSession, Token: rev.PreviousToken,
			}
		}
	}
	return port.FeedEvent{Kind: port.Resync}
}

// lapse is a lease of a grant that ended at a revision, perhaps together with the grant.
type lapse struct {
	event port.FeedEvent
	rev   int64
	base  int64
}

func (f *feed) lapse(ev *clientv3.Event) *lapse {
	key, ok := f.store.keys.lockKey(capFolder, ev.GetKv().GetKey())
	if !ok || ev.GetPrevKv() == nil {
		return nil
	}
	r, err := decode[capRecord](ev.GetPrevKv())
	if err != nil {
		return nil
	}
	session, err := lock.ParseSessionID(r.Session)
	if err != nil {
		return nil
	}
	token := lock.Token(r.Token)
	if token == 0 {
		token = lock.Token(r.Base + ev.GetPrevKv().GetModRevision())
	}
	return &lapse{
		event: port.FeedEvent{Kind: port.GrantLapsed, Key: key, Session: session, Token: token},
		rev:   ev.GetKv().GetModRevision(), base: r.Base,
	}
}

// confirm tells of those leases that ended while their grant still stood. The others
// ended with a release, a revocation or a death.
func (f *feed) confirm(ctx context.Context, lapses []*lapse) error {
	for batch := range slices.Chunk(lapses, maxOps) {
		var ops []clientv3.Op
		for _, l := range batch {
			ops = append(ops, clientv3.OpGet(f.store.keys.grant(l.event.Key), clientv3.WithRev(l.rev)))
		}
		resp, err := f.store.fetch(ctx, ops...)
		if err != nil {
			return errors.Join(errWatchEnded, err) // the feed starts anew, with a Resync
		}
		for i, l := range batch {
			kvs := resp.Responses[i].GetResponseRange().GetKvs()
			if len(kvs) > 0 && lock.Token(l.base+kvs[0].GetModRevision()) == l.event.Token {
				f.Tell(l.event)
			}
		}
	}
	return nil
}
