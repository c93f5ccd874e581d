package postgres

import (
	"context"
	crand "crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/fencelock/fencelock/core/lock"
)

const (
	// channel is what the schema's triggers, and [tellLapsed], notify.
	channel = "fencelock"
	// silence is the pause between two proofs that the connection hears, and deafness is how long one may take.
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
	// noticeProof is for who has had it sent alone; see [Store.prove].
	noticeProof = "proof"
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
	column := func(name string) string { return "'" + name + "', " + relation + "." + name }
	return "pg_catalog.pg_notify('" + channel + "', pg_catalog.json_build_object('kind', '" + noticeLapsed + "', " +
		strings.Join([]string{column("namespace"), column("key"), column("session"), column("token")}, ", ") + ")::text)"
}

// errUnsaid is why nothing is proved about what is heard.
var errUnsaid = errors.New("the database could not be asked to notify")

// listen hears notifications until the Store ends. Whenever it begins to, everyone looks for themselves: what was
// notified before was missed. Without a direct connection, and while nothing is heard by it, it looks instead.
func (s *Store) listen() {
	s.work.Go(s.feed.run)
	if !s.pools.canListen() {
		s.poll(s.life)
		return
	}
	// outage is why nothing is heard; nil while something is, and before the first try.
	var outage error
	var stopPolling func()
	for failures := 0; ; failures++ {
		heard := time.Duration(-1) // since when
		err := s.hear(func() {
			if stopPolling != nil {
				stopPolling()
				stopPolling = nil
			}
			if outage != nil {
				s.report(Incident{Kind: ListenerRestarted, Err: outage})
			}
			outage, heard = nil, s.clock.elapsed()
			s.inPlace()
		})
		if heard >= 0 {
			s.feed.Pause()
		}
		switch {
		case s.life.Err() != nil:
			if stopPolling != nil {
				stopPolling()
			}
			return
		case heard >= 0 && s.clock.elapsed()-heard > silence:
			failures = 0
		case heard < 0 && outage != nil && stopPolling == nil:
			s.report(Incident{Kind: NotListening, Err: err})
			stopPolling = s.startPolling()
		}
		if outage == nil {
			outage = err
		}
		_ = pause(s.life, rand.N(min(relistenSoon<<min(failures, 10), relistenLate))) //nolint:gosec // jitter, no secret
	}
}

// startPolling polls until stop is called, which waits for the end of that.
func (s *Store) startPolling() (stop func()) {
	ctx, cancel := context.WithCancel(s.life)
	var work sync.WaitGroup
	work.Go(func() { s.poll(ctx) })
	return func() {
		cancel()
		work.Wait()
	}
}

// inPlace makes everyone look for themselves.
func (s *Store) inPlace() {
	s.waiters.wakeAll()
	s.feed.Begin()
}

// rest pauses; false means that the Store has ended.
func (s *Store) rest(d time.Duration) bool { return pause(s.life, d) }

// pause pauses; false means that ctx has ended.
func pause(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
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
	if err := s.prove(conn); err != nil {
		return err
	}
	ready()
	for {
		if err := s.attend(conn); err != nil {
			return err
		}
		err := s.prove(conn)
		if errors.Is(err, errUnsaid) { // as where the pool is full
			err = s.answers(conn)
		}
		if err != nil {
			return err
		}
	}
}

// attend heeds what comes for a while.
func (s *Store) attend(conn *pgx.Conn) error {
	ctx, cancel := context.WithTimeout(s.life, silence)
	defer cancel()
	for {
		notification, err := conn.WaitForNotification(ctx)
		switch {
		case err == nil:
			s.heedText(notification.Payload)
		case s.life.Err() != nil || ctx.Err() == nil || conn.IsClosed():
			return fmt.Errorf("wait for a notification: %w", err)
		default:
			return nil
		}
	}
}

// prove has the database that the Store works with notify a word, and waits for it here. A connection is silent for ever if its
// other end has vanished; and hears nothing of ours where it leads to another database, to a primary
// of the past, or through a pooler. What else is heard proves nothing: others may be there too.
func (s *Store) prove(conn *pgx.Conn) error {
	word := `{"kind":"` + noticeProof + `","word":"` + crand.Text() + `"}`
	ctx, give := context.WithCancelCause(s.life)
	var saying sync.WaitGroup
	saying.Go(func() {
		if err := s.say(ctx, word); err != nil {
			give(fmt.Errorf("%w: %w", errUnsaid, err))
			return
		}
		if pause(ctx, deafness) {
			give(errors.New("what the database notifies does not arrive here: this is not a direct connection to the same database"))
		}
	})
	defer saying.Wait()
	defer give(nil)
	for {
		notification, err := conn.WaitForNotification(ctx)
		switch {
		case err == nil && notification.Payload == word:
			return nil
		case err == nil:
			s.heedText(notification.Payload)
		case ctx.Err() != nil:
			return fmt.Errorf("listen: %w", context.Cause(ctx))
		default:
			return fmt.Errorf("wait for a notification: %w", err)
		}
	}
}

// say has the database notify a word. Its loss in a crash is no loss, so nobody waits for the disk, or a standby.
func (s *Store) say(ctx context.Context, word string) error {
	ctx, cancel := context.WithTimeout(ctx, deafness)
	defer cancel()
	_, err := s.pools.work.Exec(ctx,
		"SELECT set_config('synchronous_commit', 'off', true), pg_catalog.pg_notify('"+channel+"', $1)", word)
	return translate(err, reads)
}

// answers asks a connection whether it is still there.
func (s *Store) answers(conn *pgx.Conn) error {
	ctx, cancel := context.WithTimeout(s.life, deafness)
	defer cancel()
	if err := conn.Ping(ctx); err != nil {
		return fmt.Errorf("ask a silent connection: %w", err)
	}
	return nil
}

// heedText acts on a notification, if it is one of ours.
func (s *Store) heedText(payload string) {
	if n, ok := readNotice(payload); ok {
		s.heed(n)
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
