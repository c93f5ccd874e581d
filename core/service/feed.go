package service

import (
	"context"
	"errors"
	"time"

	"github.com/fencelock/fencelock/core/lock"
	"github.com/fencelock/fencelock/core/port"
)

const (
	// resyncers bounds how many sessions are re-read at once.
	resyncers = 4
	// resubscribeAfter is the pause after the feed has ended on its own.
	resubscribeAfter = time.Second
)

// WatchSession brings news of a session until cancel is called, the session is over
// ([SessionDead] is then the last event) or the service closes; the channel is closed at the end.
// The first news is the store's view ([HeldNow]), or SessionDead.
//
// News is a hint. The watcher never holds the service up: one that falls behind loses events and
// gets HeldNow instead. HeldNow may be a moment old: it can lack a grant made since, so
// only a heartbeat with a digest, sent after that grant, proves a loss.
func (s *Service) WatchSession(session lock.SessionID) (events <-chan SessionEvent, cancel func()) {
	w := s.hub.watch(watchBuffer, true)
	w.Add(session)
	return w.events, w.Close
}

// Watch returns a watcher of no session yet; the caller adds them, and closes it. News is
// as that of [Service.WatchSession], except that the end of one session does not end the watcher, and that
// Draining names no session.
func (s *Service) Watch() *Watcher { return s.hub.watch(newsBuffer, false) }

// followFeed reads the store's feed until the service closes.
func (s *Service) followFeed(ctx context.Context) {
	for {
		s.follow(ctx, s.backend.Feed.Subscribe())
		timer := time.NewTimer(resubscribeAfter)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return
		}
	}
}

// follow reads one subscription to its end.
func (s *Service) follow(ctx context.Context, feed port.Subscription) {
	defer feed.Close()
	for {
		select {
		case ev, open := <-feed.Events():
			if !open {
				return
			}
			s.hear(ctx, ev)
		case <-ctx.Done():
			return
		}
	}
}

// hear passes one event on.
func (s *Service) hear(ctx context.Context, ev port.FeedEvent) {
	switch ev.Kind {
	case port.GrantRevoked, port.GrantLapsed:
		if ev.Kind == port.GrantLapsed && s.hub.serves(ev.Session) {
			s.observe(ctx, port.Event{Kind: port.EventLeaseExpired, Key: ev.Key, Session: ev.Session, Token: ev.Token})
		}
		s.hub.send(SessionEvent{
			Kind:    GrantLost,
			Session: ev.Session,
			Key:     ev.Key,
			Token:   ev.Token,
			Reason:  ev.Kind,
		})
		s.ended(ev.Key)
	case port.SessionOver:
		s.sessionOver(ctx, ev.Session)
	case port.Resync:
		s.hub.refreshAll()
	}
}

// resync reads the grants of stale sessions from the store and tells their watchers.
func (s *Service) resync(ctx context.Context) {
	for {
		session, ok := s.hub.next()
		if !ok {
			select {
			case <-s.hub.work:
				continue
			case <-ctx.Done():
				return
			}
		}
		held, err := s.locksOf(ctx, session)
		switch {
		case err == nil:
			s.hub.send(SessionEvent{Kind: HeldNow, Session: session, Held: held})
		case errors.Is(err, lock.ErrSessionDead):
			s.sessionOver(ctx, session)
		case ctx.Err() != nil:
			return
		default:
			s.hub.postpone(session)
		}
	}
}
