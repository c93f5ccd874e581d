package client_test

import (
	"context"
	"sync"

	"connectrpc.com/connect"

	v1 "github.com/fencelock/fencelock/contracts/api/fencelock/v1"
	"github.com/fencelock/fencelock/contracts/api/fencelock/v1/fencelockv1connect"
	"github.com/fencelock/fencelock/core/lock"
)

type sessionHandler struct {
	fencelockv1connect.UnimplementedSessionServiceHandler
	node *node
}

type lockHandler struct {
	fencelockv1connect.UnimplementedLockServiceHandler
	node *node
}

// serve runs one operation, from the stream or as a unary call.
func (n *node) serve(ctx context.Context, op *v1.Operation, stream bool) (*v1.OperationResult, error) {
	w, res := n.world, &v1.OperationResult{Id: op.GetId()}
	c := call{stream: stream, node: n}
	switch op := op.GetCall().(type) {
	case *v1.Operation_Heartbeat:
		c.name, c.digest = "heartbeat", op.Heartbeat.HeldDigest != nil
		return res, w.carry(ctx, c, func() error {
			resp, err := w.heartbeat(op.Heartbeat)
			res.Result = &v1.OperationResult_Heartbeat{Heartbeat: resp}
			return err
		})
	case *v1.Operation_Acquire:
		c.name, c.requestID = "acquire", op.Acquire.GetRequestId()
		resp, err := w.acquireWaiting(ctx, c, op.Acquire)
		if err == nil && resp == nil {
			err = lock.Contention("cancelled", false, nil)
		}
		res.Result = &v1.OperationResult_Acquire{Acquire: resp}
		return res, err
	case *v1.Operation_Extend:
		c.name = "extend"
		return res, w.carry(ctx, c, func() error {
			resp, err := w.extend(op.Extend)
			res.Result = &v1.OperationResult_Extend{Extend: resp}
			return err
		})
	case *v1.Operation_Release:
		c.name = "release"
		return res, w.carry(ctx, c, func() error {
			ok := w.release(op.Release.GetKey(), op.Release.GetSessionId(),
				func(g *grant) bool { return g.token == op.Release.GetToken() })
			res.Result = &v1.OperationResult_Release{Release: &v1.ReleaseResponse{Released: ok}}
			return nil
		})
	case *v1.Operation_Abandon:
		c.name, c.requestID = "abandon", op.Abandon.GetRequestId()
		return res, w.carry(ctx, c, func() error {
			ok := w.release(op.Abandon.GetKey(), op.Abandon.GetSessionId(),
				func(g *grant) bool { return g.requestID == op.Abandon.GetRequestId() })
			res.Result = &v1.OperationResult_Abandon{Abandon: &v1.AbandonResponse{Withdrawn: ok}}
			return nil
		})
	}
	res.Result = &v1.OperationResult_Cancel{Cancel: &v1.CancelResult{}}
	return res, nil
}

// unary serves one operation and picks its answer.
func unary[Res any](ctx context.Context, n *node, op *v1.Operation, pick func(*v1.OperationResult) *Res) (*connect.Response[Res], error) {
	res, err := n.serve(ctx, op, false)
	if err != nil {
		return nil, wireError(err)
	}
	return connect.NewResponse(pick(res)), nil
}

func (h *sessionHandler) OpenSession(ctx context.Context, req *connect.Request[v1.OpenSessionRequest]) (*connect.Response[v1.OpenSessionResponse], error) {
	res := &v1.OpenSessionResponse{}
	err := h.node.world.carry(ctx, call{name: "open", node: h.node}, func() error {
		res.Session = h.node.world.open(req.Msg.GetTtl().AsDuration())
		return nil
	})
	if err != nil {
		return nil, wireError(err)
	}
	return connect.NewResponse(res), nil
}

func (h *sessionHandler) CloseSession(ctx context.Context, req *connect.Request[v1.CloseSessionRequest]) (*connect.Response[v1.CloseSessionResponse], error) {
	res := &v1.CloseSessionResponse{}
	err := h.node.world.carry(ctx, call{name: "close", node: h.node}, func() error {
		res.Released = int32(h.node.world.kill(req.Msg.GetSessionId()))
		return nil
	})
	if err != nil {
		return nil, wireError(err)
	}
	return connect.NewResponse(res), nil
}

func (h *sessionHandler) Heartbeat(ctx context.Context, req *connect.Request[v1.HeartbeatRequest]) (*connect.Response[v1.HeartbeatResponse], error) {
	op := &v1.Operation{Call: &v1.Operation_Heartbeat{Heartbeat: req.Msg}}
	return unary(ctx, h.node, op, (*v1.OperationResult).GetHeartbeat)
}

func (h *lockHandler) Acquire(ctx context.Context, req *connect.Request[v1.AcquireRequest]) (*connect.Response[v1.AcquireResponse], error) {
	op := &v1.Operation{Call: &v1.Operation_Acquire{Acquire: req.Msg}}
	return unary(ctx, h.node, op, (*v1.OperationResult).GetAcquire)
}

func (h *lockHandler) Extend(ctx context.Context, req *connect.Request[v1.ExtendRequest]) (*connect.Response[v1.ExtendResponse], error) {
	op := &v1.Operation{Call: &v1.Operation_Extend{Extend: req.Msg}}
	return unary(ctx, h.node, op, (*v1.OperationResult).GetExtend)
}

func (h *lockHandler) Release(ctx context.Context, req *connect.Request[v1.ReleaseRequest]) (*connect.Response[v1.ReleaseResponse], error) {
	op := &v1.Operation{Call: &v1.Operation_Release{Release: req.Msg}}
	return unary(ctx, h.node, op, (*v1.OperationResult).GetRelease)
}

func (h *lockHandler) Abandon(ctx context.Context, req *connect.Request[v1.AbandonRequest]) (*connect.Response[v1.AbandonResponse], error) {
	op := &v1.Operation{Call: &v1.Operation_Abandon{Abandon: req.Msg}}
	return unary(ctx, h.node, op, (*v1.OperationResult).GetAbandon)
}

// Attach serves the stream: one goroutine per operation, and events as they come.
func (h *sessionHandler) Attach(ctx context.Context, stream *connect.BidiStream[v1.AttachRequest, v1.AttachResponse]) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	a := &attachment{node: h.node, stream: stream, cancels: map[uint64]context.CancelFunc{}}
	events := make(chan *v1.SessionEvent, 64)
	w := h.node.world
	w.mu.Lock()
	w.watchers[events] = struct{}{}
	w.mu.Unlock()
	a.running.Go(func() { a.forward(ctx, events) })
	defer a.running.Wait()
	defer cancel()
	defer func() {
		w.mu.Lock()
		delete(w.watchers, events)
		w.mu.Unlock()
	}()
	for {
		frame, err := stream.Receive()
		if err != nil {
			return nil
		}
		for _, op := range frame.GetOperations() {
			if h.node.deaf.get() && op.GetCancel() == nil {
				continue
			}
			a.start(ctx, op)
		}
	}
}

type attachment struct {
	node    *node
	stream  *connect.BidiStream[v1.AttachRequest, v1.AttachResponse]
	running sync.WaitGroup
	mu      sync.Mutex // guards what follows
	cancels map[uint64]context.CancelFunc
	sending sync.Mutex
}

func (a *attachment) start(ctx context.Context, op *v1.Operation) {
	ctx, cancel := context.WithCancel(ctx)
	a.mu.Lock()
	a.cancels[op.GetId()] = cancel
	if other := a.cancels[op.GetCancel().GetId()]; other != nil && op.GetCancel() != nil {
		other()
	}
	a.mu.Unlock()
	a.running.Go(func() {
		defer cancel()
		res, err := a.node.serve(ctx, op, true)
		if err != nil {
			detail := errorDetail(err)
			if detail == nil { // the answer is lost
				return
			}
			res = &v1.OperationResult{Id: op.GetId(), Result: &v1.OperationResult_Error{Error: detail}}
		}
		a.send(&v1.AttachResponse{Results: []*v1.OperationResult{res}})
	})
}

func (a *attachment) forward(ctx context.Context, events <-chan *v1.SessionEvent) {
	drain := a.node.drain
	for {
		select {
		case <-ctx.Done():
			return
		case <-drain:
			drain = nil
			event := &v1.SessionEvent{Event: &v1.SessionEvent_Draining{Draining: &v1.Draining{}}}
			a.send(&v1.AttachResponse{Events: []*v1.SessionEvent{event}})
		case event := <-events:
			a.send(&v1.AttachResponse{Events: []*v1.SessionEvent{event}})
		}
	}
}

func (a *attachment) send(frame *v1.AttachResponse) {
	a.sending.Lock()
	defer a.sending.Unlock()
	_ = a.stream.Send(frame)
}
