package rpc

import (
	"sync"

	"google.golang.org/protobuf/proto"

	fencelockv1 "github.com/fencelock/fencelock/contracts/api/fencelock/v1"
)

// Bounds of one frame that is sent. One result may exceed the bytes alone: the grants of a large session.
const (
	frameResults = 256
	frameBytes   = 32 << 10
)

// outbox holds what one Attach stream has to say. Results are bounded by the slots of the operations that
// made them: a slot is given back once its result was sent. Events are bounded by the writer, which sends those
// that it has added before it takes more.
type outbox struct {
	// ready has a value while there may be something to take.
	ready chan struct{}

	mu      sync.Mutex
	results []outcome
	events  []*fencelockv1.SessionEvent
	failed  bool
}

// outcome is a result and the slot that its operation holds.
type outcome struct {
	result *fencelockv1.OperationResult
	slot   slots
}

// slots counts operations in flight; the zero slots counts nothing.
type slots chan struct{}

func (s slots) giveBack() {
	if s != nil {
		<-s
	}
}

func newOutbox() *outbox {
	return &outbox{ready: make(chan struct{}, 1)}
}

// add queues a result; the writer sends it together with whatever else is ready by then.
func (o *outbox) add(result *fencelockv1.OperationResult, slot slots) {
	o.mu.Lock()
	failed := o.failed
	if !failed {
		o.results = append(o.results, outcome{result, slot})
	}
	o.mu.Unlock()
	if failed {
		slot.giveBack()
		return
	}
	signal(o.ready)
}

// tell queues an event.
func (o *outbox) tell(event *fencelockv1.SessionEvent) {
	o.mu.Lock()
	if !o.failed {
		o.events = append(o.events, event)
	}
	o.mu.Unlock()
	signal(o.ready)
}

// take returns the next frame and the outcomes in it, or nil if there is nothing to say.
func (o *outbox) take() (*fencelockv1.AttachResponse, []outcome) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if len(o.results) == 0 && len(o.events) == 0 {
		return nil, nil
	}
	frame := &fencelockv1.AttachResponse{Events: o.events}
	o.events = nil
	n, size := 0, 0
	for n < len(o.results) && n < frameResults && size < frameBytes {
		frame.Results = append(frame.Results, o.results[n].result)
		size += proto.Size(o.results[n].result)
		n++
	}
	sent := o.results[:n:n]
	o.results = o.results[n:]
	if len(o.results) == 0 {
		o.results = nil
	}
	return frame, sent
}

// fail drops everything, now and later: the peer takes no more.
func (o *outbox) fail() {
	o.mu.Lock()
	dropped := o.results
	o.results, o.events, o.failed = nil, nil, true
	o.mu.Unlock()
	for _, d := range dropped {
		d.slot.giveBack()
	}
}

func signal(ch chan struct{}) {
	select {
	case ch <- struct{}{}:
	default:
	}
}
