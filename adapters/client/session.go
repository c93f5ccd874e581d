package client

import (
	"context"
	"sync"
	"time"

	"connectrpc.com/connect"

	v1 "github.com/fencelock/fencelock/contracts/api/fencelock/v1"
	"github.com/fencelock/fencelock/core/lock"
)

// State says how sure a session is of being alive.
type State int

// The states of a session.
const (
	// Safe: the last heartbeat was answered.
	Safe State = iota + 1
	// Jeopardy: heartbeats fail; the locks are still held, until the deadline.
	Jeopardy
	// Lost: the session is over, with all its locks. Terminal.
	Lost
)

// String returns the state's name in lower case.
func (s State) String() string {
	switch s {
	case Safe:
		return "safe"
	case Jeopardy:
		return "jeopardy"
	case Lost:
		return "lost"
	}
	return "unknown"
}

// suspicion is how long each heartbeat asks the server for what the session
// holds, after something may have been left behind.
const suspicion = 60 * time.Second

// Session is a liveness relation with the service. Its locks live and die with
// it. It is safe for concurrent use.
type Session struct {
	client *Client
	id     lock.SessionID
	ttl    time.Duration
	// ctx ends with the session; its cause is Err.
	ctx    context.Context //nolint:containedctx // this type is that life
	cancel context.CancelCauseFunc
	// kick wakes the watcher, beat the keepalive; one pending signal each.
	kick, beat chan struct{}

	mu       sync.Mutex
	deadline time.Duration // on the client's clock
	sent     time.Duration // when the heartbeat was sent that the deadline rests on
	failing  bool          // the last heartbeat failed
	suspect  time.Duration // until then every heartbeat asks for what is held
	ask      bool          // the next heartbeat asks for what is held
	over     error
	quiet    bool // over because this client said so: nothing to tell
	lost     []func(error)
	locks    map[holding]*Lock
	inFlight map[lock.RequestID]*acquisition
}

// holding identifies a grant of the session.
type holding struct {
	key   lock.Key
	token lock.Token
}

func newSession(c *Client, id lock.SessionID, ttl, sent time.Duration) *Session {
	s := &Session{
		client:   c,
		id:       id,
		ttl:      ttl,
		kick:     make(chan struct{}, 1),
		beat:     make(chan struct{}, 1),
		sent:     sent,
		deadline: c.cfg.reckon(sent, c.now(), ttl, c.cfg.margin),
		locks:    map[holding]*Lock{},
		inFlight: map[lock.RequestID]*acquisition{},
	}
	s.ctx, s.cancel = context.WithCancelCause(c.ctx)
	return s
}

// ID returns the session's secret id.
func (s *Session) ID() lock.SessionID { return s.id }

// TTL returns the time to live that the store granted.
func (s *Session) TTL() time.Duration { return s.ttl }

// State says how sure the session is of being alive.
func (s *Session) State() State {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.expired() != nil:
		return Lost
	case s.failing:
		return Jeopardy
	}
	return Safe
}

// Deadline returns the time left until the session counts as lost if no
// further heartbeat is answered; 0 once it is lost.
func (s *Session) Deadline() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.expired() != nil {
		return 0
	}
	return s.deadline - s.client.now()
}

// Done is closed when the session is over: lost or closed.
func (s *Session) Done() <-chan struct{} { return s.ctx.Done() }

// Err returns nil while the session lives, and [lock.ErrSessionDead] with the
// reason once it is over.
func (s *Session) Err() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.expired()
}

// OnLost registers a function that is called once if the session is lost, not
// if it is closed; at once if it is lost already. The functions run one after
// the other on a goroutine of the session and must not call [Client.Close].
func (s *Session) OnLost(f func(error)) {
	s.mu.Lock()
	over, quiet := s.expired(), s.quiet
	if over == nil {
		s.lost = append(s.lost, f)
	}
	s.mu.Unlock()
	if over != nil && !quiet {
		f(over)
	}
}

// Close ends the session and all its locks, here at once and then on the
// server, and returns how many the server freed. A session that is over
// on the server returns 0 and no error. If the server cannot be reached within the call
// timeout the locks are freed when the session dies there, and Close may be called again.
func (s *Session) Close(ctx context.Context) (released int, err error) {
	s.end(&lock.Error{Code: lock.CodeSessionDead, Message: "the session was closed by this client"}, true)
	req := &v1.CloseSessionRequest{SessionId: s.id.Reveal()}
	err = s.client.retry(ctx, func(ctx context.Context) error {
		resp, err := s.client.sessionRPC.CloseSession(ctx, connect.NewRequest(req))
		if err != nil {
			return Translate(err)
		}
		released = int(resp.Msg.GetReleased())
		return nil
	})
	return released, err
}

// expired returns why the session is over, or nil. It compares the clock with
// the deadline on every use, so that it does not matter how late a timer
// fires. The caller holds mu, as for all methods below.
func (s *Session) expired() error {
	if s.over == nil && s.client.now() >= s.deadline {
		s.finish(&lock.Error{
			Code:    lock.CodeSessionDead,
			Message: "given up: no heartbeat was answered in time",
		}, false)
	}
	return s.over
}

// finish ends the session and all its locks, here.
func (s *Session) finish(reason error, quiet bool) {
	if s.over != nil {
		return
	}
	s.over, s.quiet = reason, quiet
	for _, l := range s.locks {
		l.finish(&lock.Error{Code: lock.CodeLost, Message: "the grant is over", Cause: reason})
	}
	clear(s.locks)
	s.cancel(reason)
}

// end is finish for callers that do not hold mu.
func (s *Session) end(reason error, quiet bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.finish(reason, quiet)
}
