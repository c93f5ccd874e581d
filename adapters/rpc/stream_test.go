package rpc_test

import (
	"context"
	"errors"
	"io"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/fencelock/fencelock/adapters/rpc"
	fencelockv1 "github.com/fencelock/fencelock/contracts/api/fencelock/v1"
	"github.com/fencelock/fencelock/core/lock"
)

// wire is one Attach stream, with a reader that sorts what comes.
type wire struct {
	stream  *connect.BidiStreamForClient[fencelockv1.AttachRequest, fencelockv1.AttachResponse]
	results chan *fencelockv1.OperationResult
	events  chan *fencelockv1.SessionEvent
	// ended has the stream's error, io.EOF for a clean end.
	ended chan error
	// largest is the largest number of results in one frame; read it after ended.
	largest int
}

func (a api) attach(t *testing.T) *wire {
	t.Helper()
	w := &wire{
		stream:  a.sessions.Attach(t.Context()),
		results: make(chan *fencelockv1.OperationResult, 10_000),
		events:  make(chan *fencelockv1.SessionEvent, 10_000),
		ended:   make(chan error, 1),
	}
	go func() {
		for {
			frame, err := w.stream.Receive()
			if err != nil {
				w.ended <- err
				return
			}
			w.largest = max(w.largest, len(frame.GetResults()))
			for _, r := range frame.GetResults() {
				w.results <- r
			}
			for _, e := range frame.GetEvents() {
				w.events <- e
			}
		}
	}()
	return w
}

func (w *wire) send(t *testing.T, ops ...*fencelockv1.Operation) {
	t.Helper()
	if err := w.stream.Send(&fencelockv1.AttachRequest{Operations: ops}); err != nil {
		t.Fatal(err)
	}
}

// next returns what comes next.
func next[T any](t *testing.T, from <-chan T) T {
	t.Helper()
	timer := time.NewTimer(eventually)
	defer timer.Stop()
	select {
	case v := <-from:
		return v
	case <-timer.C:
		t.Fatal("nothing came")
		panic("unreachable")
	}
}

// event returns the next event of a kind that accept takes, and passes over others.
func (w *wire) event(t *testing.T, accept func(*fencelockv1.SessionEvent) bool) *fencelockv1.SessionEvent {
	t.Helper()
	for {
		if e := next(t, w.events); accept(e) {
			return e
		}
	}
}

func opHeartbeat(id uint64, session string) *fencelockv1.Operation {
	return &fencelockv1.Operation{Id: id, Call: &fencelockv1.Operation_Heartbeat{Heartbeat: &fencelockv1.HeartbeatRequest{SessionId: session}}}
}

func opAcquire(id uint64, session, key, request string, wait time.Duration) *fencelockv1.Operation {
	return &fencelockv1.Operation{Id: id, Call: &fencelockv1.Operation_Acquire{Acquire: &fencelockv1.AcquireRequest{
		Key: key, SessionId: session, RequestId: request, Wait: durationpb.New(wait),
	}}}
}

func opRelease(id uint64, session, key string, token int64) *fencelockv1.Operation {
	return &fencelockv1.Operation{Id: id, Call: &fencelockv1.Operation_Release{Release: &fencelockv1.ReleaseRequest{
		Key: key, SessionId: session, Token: token,
	}}}
}

func opCancel(id, target uint64) *fencelockv1.Operation {
	return &fencelockv1.Operation{Id: id, Call: &fencelockv1.Operation_Cancel{Cancel: &fencelockv1.CancelOperation{Id: target}}}
}

func (f *fixture) waiters() int { return f.service.Status().Waiters }

func TestAttachCarriesEveryOperation(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	c := f.plain(t)
	session := c.open(t)
	w := c.attach(t)
	w.send(t, opHeartbeat(1, session))
	if r := next(t, w.results); r.GetId() != 1 || r.GetHeartbeat().GetRemaining().AsDuration() <= 0 {
		t.Fatalf("heartbeat: %v", r)
	}
	w.send(t, opAcquire(2, session, "a", "r1", 0))
	grant := next(t, w.results).GetAcquire().GetGrant()
	if grant.GetToken() <= 0 || grant.GetRequestId() != "r1" || grant.GetWaited() == nil {
		t.Fatalf("grant: %v", grant)
	}
	w.send(t, &fencelockv1.Operation{Id: 3, Call: &fencelockv1.Operation_Extend{Extend: &fencelockv1.ExtendRequest{
		Key: "a", SessionId: session, Token: grant.GetToken(),
	}}})
	if got := next(t, w.results).GetExtend().GetGrant().GetToken(); got != grant.GetToken() {
		t.Errorf("extend: token %d, want %d", got, grant.GetToken())
	}
	w.send(t, opRelease(4, session, "a", grant.GetToken()))
	if !next(t, w.results).GetRelease().GetReleased() {
		t.Error("release: false")
	}
	w.send(t, opAcquire(5, session, "b", "r2", 0))
	next(t, w.results)
	w.send(t, &fencelockv1.Operation{Id: 6, Call: &fencelockv1.Operation_Abandon{Abandon: &fencelockv1.AbandonRequest{
		Key: "b", SessionId: session, RequestId: "r2",
	}}})
	if !next(t, w.results).GetAbandon().GetWithdrawn() {
		t.Error("abandon: false")
	}
}

func TestAttachErrorsAreThoseOfTheUnaryCalls(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	c := f.plain(t)
	session := c.open(t)
	w := c.attach(t)
	unknown := lock.NewSessionID().Reveal()
	for _, test := range []struct {
		op    *fencelockv1.Operation
		code  fencelockv1.ErrorCode
		field string
	}{
		{opHeartbeat(1, "x"), fencelockv1.ErrorCode_ERROR_CODE_INVALID, "session_id"},
		{opHeartbeat(2, unknown), fencelockv1.ErrorCode_ERROR_CODE_SESSION_DEAD, ""},
		{opAcquire(3, session, "a//b", "r", 0), fencelockv1.ErrorCode_ERROR_CODE_INVALID, "key"},
		{opAcquire(4, session, "a", "r", -time.Second), fencelockv1.ErrorCode_ERROR_CODE_INVALID, "wait"},
		{opAcquire(5, session, "a", "r", 2*time.Hour), fencelockv1.ErrorCode_ERROR_CODE_INVALID, "wait"},
		{opRelease(6, session, "a", 0), fencelockv1.ErrorCode_ERROR_CODE_INVALID, "token"},
		{&fencelockv1.Operation{Id: 7}, fencelockv1.ErrorCode_ERROR_CODE_INVALID, "call"},
	} {
		w.send(t, test.op)
		r := next(t, w.results)
		if r.GetId() != test.op.GetId() || r.GetError().GetCode() != test.code || r.GetError().GetDetails()["field"] != test.field {
			t.Errorf("%v: %v, want %v of %q", test.op, r, test.code, test.field)
		}
	}
}

func TestAttachAnswersAFrameInFrames(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	c := f.plain(t)
	session := c.open(t)
	w := c.attach(t)
	const n = 500
	var ops []*fencelockv1.Operation
	for i := range uint64(n) {
		ops = append(ops, opHeartbeat(i, session))
	}
	w.send(t, ops...)
	seen := map[uint64]bool{}
	for range n {
		r := next(t, w.results)
		if r.GetHeartbeat() == nil || seen[r.GetId()] {
			t.Fatalf("result %v", r)
		}
		seen[r.GetId()] = true
	}
	if err := w.stream.CloseRequest(); err != nil {
		t.Fatal(err)
	}
	if err := next(t, w.ended); !errors.Is(err, io.EOF) {
		t.Fatalf("the stream ended with %v", err)
	}
	if w.largest < 2 {
		t.Error("each result came in a frame of its own")
	}
}

func TestAttachCancelEndsAWait(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	c := f.plain(t)
	holder, waiting := c.open(t), c.open(t)
	c.acquire(t, holder, heldKey, "r0")
	w := c.attach(t)
	w.send(t, opAcquire(1, waiting, heldKey, "r1", time.Hour))
	waitFor(t, "the acquire stands in line", func() bool { return f.waiters() == 1 })
	w.send(t, opAcquire(1, waiting, "other", "r2", 0))
	if r := next(t, w.results); r.GetError().GetDetails()["field"] != "id" {
		t.Errorf("an id that is in flight was taken again: %v", r)
	}
	w.send(t, opCancel(2, 1))
	results := map[uint64]*fencelockv1.OperationResult{}
	for range 2 {
		r := next(t, w.results)
		results[r.GetId()] = r
	}
	if results[2].GetCancel() == nil || !results[1].GetError().GetSafeToRetry() {
		t.Errorf("results %v", results)
	}
	waitFor(t, "the line is empty", func() bool { return f.waiters() == 0 })
}

// TestRow44ABrokenCallLeavesTheLine: the waiter of a dropped connection is removed, and the next in line is granted.
func TestRow44ABrokenCallLeavesTheLine(t *testing.T) {
	t.Parallel()
	drop := map[string]func(t *testing.T, c api, session string) (cut func()){
		"unary": func(t *testing.T, c api, session string) func() {
			t.Helper()
			ctx, cancel := context.WithCancel(t.Context())
			go func() {
				_, _ = c.locks.Acquire(ctx, connect.NewRequest(opAcquire(0, session, heldKey, "r1", time.Hour).GetAcquire()))
			}()
			return cancel
		},
		"attach": func(t *testing.T, c api, session string) func() {
			t.Helper()
			ctx, cancel := context.WithCancel(t.Context())
			stream := c.sessions.Attach(ctx)
			if err := stream.Send(&fencelockv1.AttachRequest{Operations: []*fencelockv1.Operation{
				opAcquire(1, session, heldKey, "r1", time.Hour),
			}}); err != nil {
				t.Fatal(err)
			}
			return cancel
		},
	}
	for name, start := range drop {
		for _, p := range protocols() {
			if name == "attach" && !p.http2 {
				continue
			}
			t.Run(name+" "+p.name, func(t *testing.T) {
				t.Parallel()
				f := newFixture(t)
				c, other := f.client(t, p), f.plain(t)
				holder, leaver, patient := other.open(t), other.open(t), other.open(t)
				token := other.acquire(t, holder, heldKey, "r0").GetToken()
				cut := start(t, c, leaver)
				waitFor(t, "the first stands in line", func() bool { return f.waiters() == 1 })
				w := other.attach(t)
				w.send(t, opAcquire(1, patient, heldKey, "r2", time.Hour))
				waitFor(t, "the second stands in line", func() bool { return f.waiters() == 2 })
				cut()
				waitFor(t, "the first has left the line", func() bool { return f.waiters() == 1 })
				other.release(t, holder, heldKey, token)
				if got := next(t, w.results).GetAcquire().GetGrant(); got.GetToken() <= token {
					t.Errorf("the next in line got %v", got)
				}
			})
		}
	}
}

func TestTheEndOfAStreamReleasesNothing(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	c := f.plain(t)
	session := c.open(t)
	w := c.attach(t)
	w.send(t, opAcquire(1, session, "a", "r1", 0))
	token := next(t, w.results).GetAcquire().GetGrant().GetToken()
	if err := w.stream.CloseRequest(); err != nil {
		t.Fatal(err)
	}
	if err := next(t, w.ended); !errors.Is(err, io.EOF) {
		t.Fatalf("the stream ended with %v", err)
	}
	if again := c.acquire(t, session, "a", "r1"); again.GetToken() != token {
		t.Errorf("grant %v, want the one under token %d", again, token)
	}
}

func TestRow43AStreamThatSaysNothingIsClosed(t *testing.T) {
	t.Parallel()
	f := newFixture(t, func(c *rpc.Config) { c.Limits.FirstFrame = 50 * time.Millisecond })
	w := f.plain(t).attach(t)
	if err := w.stream.Send(nil); err != nil { // headers only
		t.Fatal(err)
	}
	wantError(t, next(t, w.ended), connect.CodeDeadlineExceeded, fencelockv1.ErrorCode_ERROR_CODE_UNSPECIFIED)
}

func TestAStreamThatFallsSilentIsClosed(t *testing.T) {
	t.Parallel()
	f := newFixture(t, func(c *rpc.Config) { c.Limits.IdleStream = 50 * time.Millisecond })
	c := f.plain(t)
	w := c.attach(t)
	w.send(t, opHeartbeat(1, c.open(t)))
	wantError(t, next(t, w.ended), connect.CodeDeadlineExceeded, fencelockv1.ErrorCode_ERROR_CODE_UNSPECIFIED)
}

func TestAttachBringsNewsOfItsSessions(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	c := f.plain(t)
	session := c.open(t)
	w := c.attach(t)
	w.send(t, opAcquire(1, session, "a", "r1", 0))
	token := next(t, w.results).GetAcquire().GetGrant().GetToken()
	w.event(t, func(e *fencelockv1.SessionEvent) bool { return e.GetHeld() != nil }) // the watch is in place
	if _, err := c.admin.Revoke(t.Context(), connect.NewRequest(&fencelockv1.RevokeRequest{
		Key: "a", Operator: "op", Reason: "worker is stuck", ExpectedToken: token,
	})); err != nil {
		t.Fatal(err)
	}
	lost := w.event(t, func(e *fencelockv1.SessionEvent) bool { return e.GetGrantLost() != nil })
	if g := lost.GetGrantLost(); g.GetToken() != token || g.GetKey() != "a" ||
		g.GetReason() != fencelockv1.LossReason_LOSS_REASON_REVOKED || lost.GetSessionId() != session {
		t.Errorf("event %v", lost)
	}
	id, err := lock.ParseSessionID(session)
	if err != nil {
		t.Fatal(err)
	}
	f.world.KillSession(id)
	dead := w.event(t, func(e *fencelockv1.SessionEvent) bool { return e.GetSessionDead() != nil })
	if dead.GetSessionId() != session {
		t.Errorf("event %v", dead)
	}
}

func TestTooManyWaitsOnAStreamDoNotStopHeartbeats(t *testing.T) {
	t.Parallel()
	f := newFixture(t, func(c *rpc.Config) { c.Limits.Waits = 3 })
	c := f.plain(t)
	holder, waiting := c.open(t), c.open(t)
	c.acquire(t, holder, heldKey, "r0")
	w := c.attach(t)
	for i := range uint64(5) {
		w.send(t, opAcquire(i, waiting, heldKey, "r"+string(rune('a'+i)), time.Hour))
	}
	for range 2 {
		r := next(t, w.results)
		if r.GetError().GetCode() != fencelockv1.ErrorCode_ERROR_CODE_TOO_MANY_WAITERS || r.GetError().GetRetryAfter() == nil {
			t.Errorf("result %v, want too many waiters with a hint", r)
		}
	}
	w.send(t, opHeartbeat(10, waiting))
	if r := next(t, w.results); r.GetHeartbeat() == nil {
		t.Errorf("heartbeat: %v", r)
	}
}

// TestASlowReaderHoldsUpOnlyItself: a peer that does not read is bounded, loses its stream, and delays nobody.
func TestASlowReaderHoldsUpOnlyItself(t *testing.T) {
	t.Parallel()
	f := newFixture(t, func(c *rpc.Config) { c.Limits.SendTime = 200 * time.Millisecond })
	c := f.plain(t)
	session := c.open(t)
	large := opAcquire(0, session, "a", "r1", 0).GetAcquire()
	large.Metadata = map[string]string{"note": strings.Repeat("x", 4000)}
	if _, err := c.locks.Acquire(t.Context(), connect.NewRequest(large)); err != nil {
		t.Fatal(err)
	}
	slow := f.plain(t).sessions.Attach(t.Context())
	sent := make(chan error, 1)
	go func() {
		// Answers of four kilobytes that nobody takes: the windows fill, then the slots, then the sending stops.
		for i := uint64(0); ; i++ {
			var ops []*fencelockv1.Operation
			for j := range uint64(100) {
				ops = append(ops, opAcquire(i*100+j, session, "a", "r1", 0))
			}
			if err := slow.Send(&fencelockv1.AttachRequest{Operations: ops}); err != nil {
				sent <- err
				return
			}
		}
	}()
	for i := range uint64(20) {
		w := c.attach(t)
		w.send(t, opHeartbeat(i, session))
		if r := next(t, w.results); r.GetHeartbeat() == nil {
			t.Errorf("a neighbour's heartbeat: %v", r)
		}
	}
	if err := next(t, sent); err == nil {
		t.Error("the slow stream goes on")
	}
}

func TestDrainingEndsStreamsAfterTellingThem(t *testing.T) {
	t.Parallel()
	f := newFixture(t, func(c *rpc.Config) { c.Limits.DrainGrace = 50 * time.Millisecond })
	c := f.plain(t)
	holder, waiting := c.open(t), c.open(t)
	token := c.acquire(t, holder, heldKey, "r0").GetToken()
	w := c.attach(t)
	w.send(t, opAcquire(1, waiting, heldKey, "r1", time.Hour))
	waitFor(t, "the acquire stands in line", func() bool { return f.waiters() == 1 })
	watch, err := c.sessions.WatchSession(t.Context(), connect.NewRequest(&fencelockv1.WatchSessionRequest{SessionId: holder}))
	if err != nil {
		t.Fatal(err)
	}
	picture, err := c.locks.WatchLock(t.Context(), connect.NewRequest(&fencelockv1.WatchLockRequest{Key: heldKey}))
	if err != nil {
		t.Fatal(err)
	}
	if !watch.Receive() || watch.Msg().GetEvent().GetHeld() == nil {
		t.Fatalf("first news: %v, %v", watch.Msg(), watch.Err())
	}
	if !picture.Receive() || picture.Msg().GetState().GetGrant().GetToken() != token {
		t.Fatalf("first picture: %v, %v", picture.Msg(), picture.Err())
	}
	f.handler.Drain()
	w.event(t, func(e *fencelockv1.SessionEvent) bool { return e.GetDraining() != nil })
	if r := next(t, w.results); !r.GetError().GetSafeToRetry() {
		t.Errorf("the wait ended with %v, want a retryable error", r)
	}
	if err := next(t, w.ended); !errors.Is(err, io.EOF) {
		t.Errorf("the stream ended with %v, want a clean end", err)
	}
	if !watch.Receive() || watch.Msg().GetEvent().GetDraining() == nil || watch.Receive() || watch.Err() != nil {
		t.Errorf("watch of the session: %v, %v; want draining and a clean end", watch.Msg(), watch.Err())
	}
	for picture.Receive() {
	}
	wantError(t, picture.Err(), connect.CodeUnavailable, fencelockv1.ErrorCode_ERROR_CODE_CONTENTION)
	if again := c.acquire(t, holder, heldKey, "r0"); again.GetToken() != token {
		t.Errorf("the grant %v did not survive the draining", again)
	}
}
