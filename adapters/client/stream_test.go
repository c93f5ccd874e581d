package client_test

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/fencelock/fencelock/adapters/client"
	v1 "github.com/fencelock/fencelock/contracts/api/fencelock/v1"
	"github.com/fencelock/fencelock/core/lock"
)

func TestOperationsGoOverOneStream(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, 1)
		sessions := []*client.Session{b.open(), b.open(), b.open()}
		b.linked()
		dials := b.nodes[0].dials.get()
		for i, s := range sessions {
			l := b.acquire(s, string(rune('k'+i)), client.WithLease(10*time.Second))
			if err := l.Extend(t.Context(), 0); err != nil {
				t.Error(err)
			}
			if _, err := l.Release(t.Context()); err != nil {
				t.Error(err)
			}
		}
		elapse(10 * time.Second)
		for _, name := range []string{"heartbeat", "acquire", "extend", "release"} {
			for _, c := range b.seen(name) {
				if !c.stream {
					t.Errorf("a %s went as a unary call", name)
				}
			}
		}
		if now := b.nodes[0].dials.get(); now != dials {
			t.Errorf("%d more connections were opened", now-dials)
		}
	})
}

func TestNewStreamIsToldOfEverySession(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, 2)
		for range 3 {
			b.open()
		}
		b.linked()
		elapse(10 * time.Millisecond)
		close(b.nodes[0].drain)
		elapse(time.Second)
		b.linked()
		told := 0
		for _, c := range b.seen("heartbeat") {
			if c.stream && c.node == b.nodes[1] {
				told++
			}
		}
		if told != 3 || b.clock.Elapsed() > 3*time.Second { // the next heartbeat is due after 3s
			t.Errorf("%d sessions were presented by %v, want 3", told, b.clock.Elapsed())
		}
	})
}

func TestServerWithoutHTTP2IsServedByUnaryCalls(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := &bench{world: newWorld(), t: t, net: &network{}}
		b.nodes = append(b.nodes, b.net.addNode(t, "old", b.world, false))
		b.connect([]string{"old:80"})
		s := b.open()
		l := b.acquire(s, "k", client.WithLease(9*time.Minute))
		elapse(5 * time.Minute)
		if err := l.CheckStillHeld(); err != nil {
			t.Error(err)
		}
		if err := l.Extend(t.Context(), 0); err != nil {
			t.Error(err)
		}
		if outcome, err := l.Release(t.Context()); outcome != client.Released {
			t.Errorf("Release = %v, %v", outcome, err)
		}
		if n := b.nodes[0].dials.get(); n > 40 {
			t.Errorf("%d connections in five minutes: the stream is tried too often", n)
		}
		if s.State() != client.Safe {
			t.Error("the session is not safe")
		}
	})
}

func event(s *client.Session, fill func(*v1.SessionEvent)) *v1.SessionEvent {
	e := &v1.SessionEvent{SessionId: s.ID().Reveal()}
	fill(e)
	return e
}

func TestRevocationIsLearnedAtOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, 1)
		s := b.open()
		b.linked()
		l, other := b.acquire(s, "k"), b.acquire(s, "other")
		lost := func(token lock.Token) *v1.SessionEvent {
			return event(s, func(e *v1.SessionEvent) {
				e.Event = &v1.SessionEvent_GrantLost{GrantLost: &v1.GrantLost{
					Namespace: "default", Key: "k", Token: int64(token), Reason: v1.LossReason_LOSS_REASON_REVOKED,
				}}
			})
		}
		b.tell(lost(l.Token() + 7)) // another grant of the key
		synctest.Wait()
		if err := l.CheckStillHeld(); err != nil {
			t.Fatalf("news of another token was taken for this lock's: %v", err)
		}
		b.tell(lost(l.Token()))
		synctest.Wait()
		if l.Context().Err() == nil {
			t.Error("the lock's context still runs")
		}
		wantCode(t, l.CheckStillHeld(), lock.CodeLost)
		if err := other.CheckStillHeld(); err != nil {
			t.Errorf("the other lock: %v", err)
		}
	})
}

func TestDeathIsLearnedAtOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, 1)
		s := b.open()
		b.linked()
		b.tell(event(s, func(e *v1.SessionEvent) {
			e.Event = &v1.SessionEvent_SessionDead{SessionDead: &v1.SessionDead{}}
		}))
		synctest.Wait()
		wantCode(t, s.Err(), lock.CodeSessionDead)
	})
}

func TestHeldEventMakesTheClientAsk(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, 1)
		s := b.open()
		b.linked()
		l := b.acquire(s, "k")
		b.drop("k")
		b.tell(event(s, func(e *v1.SessionEvent) { e.Event = &v1.SessionEvent_Held{Held: &v1.HeldGrants{}} }))
		elapse(100 * time.Millisecond)
		wantCode(t, l.CheckStillHeld(), lock.CodeLost)
	})
}

func TestBrokenStreamIsReplacedAndItsCallsRepeated(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, 2)
		holder := b.acquire(b.open(), "k")
		s := b.open()
		b.linked()
		granted := make(chan *client.Lock, 1)
		go func() {
			l, err := s.Acquire(t.Context(), "k")
			if err != nil {
				t.Error(err)
			}
			granted <- l
		}()
		elapse(time.Second)
		b.nodes[0].down.shut()
		_ = b.nodes[0].server.Close()
		elapse(5 * time.Second)
		if _, err := holder.Release(t.Context()); err != nil {
			t.Fatal(err)
		}
		l := <-granted
		var ids []string
		for _, c := range b.seen("acquire")[1:] {
			ids = append(ids, c.requestID)
		}
		if len(ids) < 2 || ids[0] != ids[1] {
			t.Errorf("request ids = %v, want one id sent again", ids)
		}
		if l == nil || !b.holds("k", l.Token()) {
			t.Error("not granted")
		}
		b.linked()
	})
}

func TestDrainingServerIsLeftWithoutAFailedCall(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, 2)
		s := b.open()
		b.linked()
		l := b.acquire(s, "k")
		close(b.nodes[0].drain)
		elapse(6 * time.Second)
		b.linked()
		b.nodes[0].down.shut()
		_ = b.nodes[0].server.Close()
		elapse(time.Minute)
		if err := l.CheckStillHeld(); err != nil || s.State() != client.Safe {
			t.Errorf("state %v, lock %v", s.State(), err)
		}
		beats := b.seen("heartbeat")
		if last := beats[len(beats)-1]; last.node != b.nodes[1] || !last.stream {
			t.Error("the stream did not move to the other server")
		}
	})
}

func TestFrozenServerIsLeftBeforeTheDeadline(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, 2)
		s := b.open()
		b.linked()
		l := b.acquire(s, "k")
		elapse(10 * time.Second)
		b.nodes[0].wires.shut()
		elapse(time.Minute)
		if err := l.CheckStillHeld(); err != nil {
			t.Errorf("the lock was lost although another server worked: %v", err)
		}
		b.linked()
		b.nodes[0].wires.open()
	})
}

func TestServerCutFromItsStoreIsLeft(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, 2)
		s := b.open()
		b.linked()
		l := b.acquire(s, "k")
		b.suffer(func(c call) fault {
			if c.node == b.nodes[0] {
				return fault{err: lock.ErrContention}
			}
			return fault{}
		})
		elapse(time.Minute)
		if err := l.CheckStillHeld(); err != nil || s.State() != client.Safe {
			t.Errorf("state %v, lock %v", s.State(), err)
		}
		beats := b.seen("heartbeat")
		if last := beats[len(beats)-1]; last.node != b.nodes[1] || !last.stream {
			t.Error("the stream did not move to the server that works")
		}
	})
}

func TestRawCallsGoToTheNextEndpoint(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, 3)
		b.nodes[0].down.shut()
		b.nodes[1].down.shut()
		s := b.open()
		if opened := b.seen("open"); len(opened) != 1 || opened[0].node != b.nodes[2] {
			t.Errorf("opened %+v", opened)
		}
		b.nodes[2].down.shut()
		_ = b.nodes[2].server.Close()
		_, err := b.client.OpenSession(t.Context(), "tester")
		wantCode(t, err, lock.CodeContention)
		if lock.IsAmbiguous(err) {
			t.Error("a call that never left is called ambiguous")
		}
		_ = s
	})
}

func TestDeafStreamIsReplaced(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, 1)
		s := b.open()
		b.linked()
		b.nodes[0].deaf.set(true)
		done := make(chan error, 1)
		start := b.clock.Elapsed()
		go func() {
			_, err := s.Acquire(t.Context(), "k")
			done <- err
		}()
		time.AfterFunc(5*time.Second, func() { b.nodes[0].deaf.set(false) })
		if err := <-done; err != nil {
			t.Error(err)
		}
		if took := b.clock.Elapsed() - start; took > 10*time.Second {
			t.Errorf("granted after %v: the acquire hung on the old stream", took)
		}
	})
}

func TestFramesAreBounded(t *testing.T) {
	t.Parallel()
	var ops []*v1.Operation
	for i := range 1000 {
		acquire := &v1.AcquireRequest{Key: "k"}
		if i >= 500 {
			acquire.Metadata = map[string]string{"m": strings.Repeat("x", 4000)}
		}
		ops = append(ops, &v1.Operation{Call: &v1.Operation_Acquire{Acquire: acquire}})
	}
	sent := 0
	frames := client.Frames(ops)
	if least := 500/128 + 500/8; len(frames) > least+5 { // small ones, and those of 4 KB
		t.Errorf("%d frames where %d would do", len(frames), least)
	}
	for _, frame := range frames {
		if size := proto.Size(&v1.AttachRequest{Operations: frame}); len(frame) > 128 || size > 33<<10 {
			t.Errorf("a frame has %d operations and %d bytes", len(frame), size)
		}
		for _, op := range frame {
			if op != ops[sent] {
				t.Fatal("an operation is lost or out of order")
			}
			sent++
		}
	}
	if sent != len(ops) {
		t.Errorf("%d operations were sent, want %d", sent, len(ops))
	}
}
