package postgres

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/fencelock/fencelock/core/lock"
)

const (
	// channel is what the schema's triggers, and [tellLapsed], notify.
	channel = "fencelock"
	// silence is how long nothing may come before the connection is asked whether it is still there, and
	// deafness is how long it may take to answer.
	silence, deafness = 5 * time.Second, 3 * time.Second
	// relistenSoon and relistenLate are the longest pauses before the first and before a later try to listen again.
	relistenSoon, relistenLate = 50 * time.Millisecond, 5 * time.Second
	// farewell bounds the end of a connection.
	farewell = time.Second
)

// The kinds of notices.
const (
	noticeFreed       = "freed"
	noticeLapsed      = "lapsed"
	noticeSessionOver = "session_over"
	noticeRevoked     = "revoked"
)

// notice is what a notification says. Anybody may send one, so it is a hint, and whatever it leads to is asked of the tables.
type notice struct {
	Kind      string `json:"kind"`
	Namespace string `json:"namespace"`
	Key       string `json:"key"`
	// Session is lock_session.id, Revocation is lock_revocation.id.
	Session    int64 `json:"session"`
	Token      int64 `json:"token"`
	Revocation int64 `json:"revocation"`

	key lock.Key
}

// readNotice reads a payload; ok is false for what none of ours looks like.
func readNotice(payload string) (n notice, ok bool) {
	if err := json.Unmarshal([]byte(payload), &n); err != nil {
		return notice{}, false
	}
	switch n.Kind {
	case noticeFreed, noticeLapsed:
		var err error
		if n.key, err = lock.NewKey(n.Namespace, n.Key); err != nil {
			return notice{}, false
		}
		return n, n.Kind == noticeFreed || n.Session > 0 && n.Token > 0
	case noticeSessionOver:
		return n, n.Session > 0
	case noticeRevoked:
		return n, n.Revocation > 0
	}
	return notice{}, false
}

// tellLapsed is the SQL expression that notifies of a grant whose lease has lapsed; relation has its namespace, key, session and
// token.
func tellLapsed(relation string) string {
	return "pg_notify('" + channel + "', json_build_object('kind', '" + noticeLapsed + "', 'namespace', " + relation + ".namespace, 'key', " +
		relation + ".key, 'session', " + relation + ".session, 'token', " + relation + ".token)::text)"
}

// listen hears notifications until the Store ends. Whenever it begins to, everyone looks for themselves: what was
// notified before was missed. Without a direct connection it looks instead.
func (s *Store) listen() {
	if !s.pools.canListen() {
		s.poll()
		return
	}
	s.work.Go(s.feed.run)
	// outage is why nothing is heard; nil while something is, and before the first try.
	var outage error
	for failures := 0; ; failures++ {
		heard := time.Duration(-1) // since when
		err := s.hear(func() {
			if outage != nil {
				s.report(Incident{Kind: ListenerRestarted, Err: outage})
			}
			outage, heard = nil, s.clock.elapsed()
			s.inPlace()
		})
		s.feed.Pause()
		switch {
		case s.life.Err() != nil:
			return
		case heard >= 0 && s.clock.elapsed()-heard > silence:
			failures = 0
		case heard < 0 && outage != nil && failures == 1:
			s.report(Incident{Kind: NotListening, Err: err})
		}
		if outage == nil {
			outage = err
		}
		if !s.rest(rand.N(min(relistenSoon<<min(failures, 10), relistenLate))) { //nolint:gosec // jitter, no secret
			return
		}
	}
}

// inPlace makes everyone look for themselves.
func (s *Store) inPlace() {
	s.waiters.wakeAll()
	s.feed.Begin()
}

// rest pauses; false means that the Store has ended.
func (s *Store) rest(pause time.Duration) bool {
	timer := time.NewTimer(pause)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-s.life.Done():
		return false
	}
}

// hear listens on a new connection, calls ready when it does, and returns why it no longer does.
func (s *Store) hear(ready func()) error {
	conn, err := s.pools.listener(s.life)
	if err != nil {
		return err
	}
	defer func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(s.life), farewell)
		defer cancel()
		_ = conn.Close(ctx)
	}()
	ctx, cancel := context.WithTimeout(s.life, deafness)
	defer cancel()
	if _, err := conn.Exec(ctx, "LISTEN "+channel); err != nil {
		return fmt.Errorf("listen: %w", err)
	}
	ready()
	for {
		payload, err := s.next(conn)
		if err != nil {
			return err
		}
		if n, ok := readNotice(payload); ok {
			s.heed(n)
		}
	}
}

// next waits for a notification. A connection that has been silent for a while is asked whether it is still there: one
// whose other end has vanished would be silent for ever.
func (s *Store) next(conn *pgx.Conn) (payload string, err error) {
	for {
		ctx, cancel := context.WithTimeout(s.life, silence)
		notification, err := conn.WaitForNotification(ctx)
		cancel()
		if err == nil {
			return notification.Payload, nil
		}
		if s.life.Err() != nil || !errors.Is(err, context.DeadlineExceeded) || conn.IsClosed() {
			return "", fmt.Errorf("wait for a notification: %w", err)
		}
		ctx, cancel = context.WithTimeout(s.life, deafness)
		err = conn.Ping(ctx)
		cancel()
		if err != nil {
			return "", fmt.Errorf("ask a silent connection: %w", err)
		}
	}
}

// heed acts on a notice. It must be quick: what takes a question to the store is left to the feed.
func (s *Store) heed(n notice) {
	switch n.Kind {
	case noticeFreed:
		s.waiters.fire(n.key)
		return
	case noticeLapsed:
		s.waiters.fire(n.key)
	case noticeSessionOver:
		s.waiters.ended(n.Session)
	}
	s.feed.ask(n)
}
