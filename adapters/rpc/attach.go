package rpc

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"connectrpc.com/connect"

	fencelockv1 "github.com/fencelock/fencelock/contracts/api/fencelock/v1"
	"github.com/fencelock/fencelock/core/service"
)

// Attach carries many operations of many sessions over one stream.
//
// Three kinds of goroutine serve it, all of which end before the method returns: this one reads
// frames; one writes; each operation in flight has one of its own. A result is sent with whatever else is ready
// by then, so load fills frames and a lone result never waits.
func (h *sessionHandler) Attach(
	ctx context.Context, stream *connect.BidiStream[fencelockv1.AttachRequest, fencelockv1.AttachResponse],
) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	waits, cancelWaits := context.WithCancel(ctx)
	defer cancelWaits()
	limits := h.cfg.Limits
	s := &attached{
		calls:      h.calls,
		cfg:        h.cfg,
		ctx:        ctx,
		cancel:     cancel,
		waits:      waits,
		stream:     stream,
		arrival:    arrivalOf(ctx),
		out:        newOutbox(),
		operations: make(slots, limits.Operations),
		waiting:    make(slots, limits.Waits),
		inFlight:   make(map[uint64]context.CancelFunc),
		news:       h.cfg.Service.Watch(),
		draining:   h.draining,
		finish:     make(chan struct{}),
	}
	defer s.news.Close()
	written := make(chan struct{})
	go func() {
		defer close(written)
		s.write()
	}()
	err := s.read()
	cancelWaits()
	s.running.Wait() // bounded: waits are cancelled, store calls have a timeout
	close(s.finish)
	<-written
	return err
}

// attached is one Attach stream.
type attached struct {
	calls   calls
	cfg     Config
	stream  *connect.BidiStream[fencelockv1.AttachRequest, fencelockv1.AttachResponse]
	arrival *arrival
	out     *outbox

	// ctx is the stream's; waits ends earlier, when no more operations can come.
	ctx    context.Context //nolint:containedctx // this type is the stream's life
	cancel context.CancelFunc
	waits  context.Context //nolint:containedctx // as above

	// operations and waiting bound what is in flight.
	operations, waiting slots
	running             sync.WaitGroup
	// news is of the sessions that this stream has proved to know.
	news     *service.Watcher
	draining <-chan struct{}
	// finish tells the writer that nothing more will be added.
	finish chan struct{}

	mu       sync.Mutex
	inFlight map[uint64]context.CancelFunc
	drained  bool
}

// read starts the operations of each frame until the peer ends the stream, breaks it or idles, or the
// server drains.
func (s *attached) read() error {
	s.arrival.readBefore(s.cfg.Limits.FirstFrame)
	armed := time.Duration(-1)
	for {
		frame, err := s.stream.Receive()
		now := s.cfg.Clock.Elapsed()
		switch {
		case err == nil:
		case errors.Is(err, io.EOF) || s.isDrained():
			return nil
		case errors.Is(err, os.ErrDeadlineExceeded) && s.ctx.Err() == nil:
			return plainError(connect.CodeDeadlineExceeded, "the stream was idle for too long")
		default:
			s.cancel()
			return fmt.Errorf("receive frame: %w", err)
		}
		// Setting a deadline costs a message to the connection's goroutine: not for each frame.
		if armed < 0 || now-armed > s.cfg.Limits.IdleStream/16 {
			armed = now
			s.arrival.readBefore(s.cfg.Limits.IdleStream)
		}
		for _, op := range frame.GetOperations() {
			if !s.start(op, now) {
				return fmt.Errorf("start operation: %w", s.ctx.Err())
			}
		}
	}
}

// write sends frames until finish, and tells the peer once when the server drains. It takes news only
// when it can send: a slow peer falls behind in its own news, and the service keeps a picture instead of each event.
func (s *attached) write() {
	out := newSender(s.arrival, s.cfg.Limits.SendTime)
	var grace <-chan time.Time // set once draining
	draining, news := s.draining, s.news.Events()
	for {
		select {
		case <-s.out.ready:
			s.flush(out)
		case event, open := <-news:
			if !open {
				news = nil
				continue
			}
			s.tell(event, news)
			s.flush(out)
		case <-draining:
			draining = nil
			s.out.tell(&fencelockv1.SessionEvent{Event: &fencelockv1.SessionEvent_Draining{Draining: &fencelockv1.Draining{}}})
			grace = time.After(s.cfg.Limits.DrainGrace)
		case <-grace:
			s.setDrained()
			s.arrival.stopReading()
		case <-s.finish:
			s.flush(out)
			return
		}
	}
}

// flush sends all that is ready.
func (s *attached) flush(out *sender) {
	for {
		frame, sent := s.out.take()
		if frame == nil {
			return
		}
		err := out.send(func() error { return s.stream.Send(frame) })
		for _, o := range sent {
			o.slot.giveBack()
		}
		if err != nil {
			s.out.fail()
			s.cancel()
			s.arrival.stopReading()
			return
		}
	}
}

// tell queues an event and those behind it, for one frame.
func (s *attached) tell(event service.SessionEvent, news <-chan service.SessionEvent) {
	s.out.tell(s.calls.holder.event(event))
	for range len(news) {
		if event, open := <-news; open {
			s.out.tell(s.calls.holder.event(event))
		}
	}
}

func (s *attached) isDrained() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.drained
}

func (s *attached) setDrained() {
	s.mu.Lock()
	s.drained = true
	s.mu.Unlock()
}
