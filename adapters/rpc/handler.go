package rpc

import (
	"context"
	"net/http"
	"runtime/debug"
	"sync"
	"time"

	"connectrpc.com/connect"
	"connectrpc.com/grpchealth"
	"connectrpc.com/grpcreflect"

	"github.com/fencelock/fencelock/contracts/api/fencelock/v1/fencelockv1connect"
	"github.com/fencelock/fencelock/core/port"
)

// Limits of one request or stream. A zero field means its default.
type Limits struct {
	// MessageBytes bounds one message in either form, also after decompression. Default 64 KiB: the largest
	// legal acquire is about 5 KiB, and a frame of Attach holds many.
	MessageBytes int
	// BodyTime is how long the body of a request may take to arrive. Default 10s.
	BodyTime time.Duration
	// SendTime is how long a peer may take to accept one message of a stream. Default 10s.
	SendTime time.Duration
	// FirstFrame is how long an Attach stream may stay without its first frame. Default 30s.
	FirstFrame time.Duration
	// IdleStream is how long an Attach stream may stay without a frame after that. Default 11m: longer than
	// any session lives without a heartbeat.
	IdleStream time.Duration
	// Operations is how many operations of one stream may be in flight, waits excepted; more are
	// not read until one has ended and its result was sent. Default 1,024.
	Operations int
	// Waits is how many acquires of one stream may stand in line; one more is refused. Default 1,024.
	Waits int
	// DrainGrace is how long an Attach stream stays open after it was told of the draining. Default 1s.
	DrainGrace time.Duration
}

// WithDefaults returns l with zero fields filled in.
func (l Limits) WithDefaults() Limits {
	fill(&l.MessageBytes, 64<<10)
	fill(&l.BodyTime, 10*time.Second)
	fill(&l.SendTime, 10*time.Second)
	fill(&l.FirstFrame, 30*time.Second)
	fill(&l.IdleStream, 11*time.Minute)
	fill(&l.Operations, 1024)
	fill(&l.Waits, 1024)
	fill(&l.DrainGrace, time.Second)
	return l
}

func fill[T int | time.Duration](field *T, value T) {
	if *field == 0 {
		*field = value
	}
}

// compressFrom is the size in bytes from which answers are compressed, if the caller takes that: long listings. For
// single answers and frames it would cost more time than it saves.
const compressFrom = 64 << 10

// Config is what a Handler needs.
type Config struct {
	// Service does the work.
	Service Service
	// Clock stamps arrivals; the same clock as the service's.
	Clock port.Clock
	// Ready tells whether the store can grant now; health and GetServerInfo ask it. It must be cheap, since anybody
	// may ask for health.
	Ready func(context.Context) error
	// Info describes the server.
	Info Info
	// DefaultLease caps grants whose acquirer names no lease, in whole seconds; 0 binds them to their session alone.
	DefaultLease time.Duration
	// Signer signs the tokens of grants for their holders, as *fence.Signer does. Optional: without one tokens are bare numbers.
	Signer Signer
	// Limits bound each caller.
	Limits Limits
	// Panicked is told of a panic in a method, which the caller sees as internal. Optional.
	Panicked func(ctx context.Context, procedure string, value any, stack []byte)
}

// Info is what GetServerInfo tells beyond what the service knows.
type Info struct {
	Version    string
	SessionTTL time.Duration
	// SafetyMargin is the share of a guarantee that clients should not use, 0 to 1.
	SafetyMargin float64
	StartedAt    time.Time
}

// Handler serves the contract, gRPC health and gRPC reflection.
type Handler struct {
	mux      http.Handler
	draining chan struct{}
	drain    sync.Once
}

// New returns a Handler; it owns no goroutine beyond those of requests in flight.
func New(cfg Config) *Handler {
	cfg.Limits = cfg.Limits.WithDefaults()
	if cfg.Panicked == nil {
		cfg.Panicked = func(context.Context, string, any, []byte) {}
	}
	h := &Handler{draining: make(chan struct{})}
	calls := calls{service: cfg.Service, holder: holder{cfg.Signer}, defaultLease: cfg.DefaultLease}
	options := connect.WithHandlerOptions(
		connect.WithReadMaxBytes(cfg.Limits.MessageBytes),
		connect.WithCompressMinBytes(compressFrom),
		StrictJSON(),
		connect.WithInterceptors(edge{}),
		connect.WithRecover(func(ctx context.Context, spec connect.Spec, _ http.Header, value any) error {
			cfg.Panicked(ctx, spec.Procedure, value, debug.Stack())
			return plainError(connect.CodeInternal, internalMessage)
		}),
	)
	mux := http.NewServeMux()
	mux.Handle(fencelockv1connect.NewSessionServiceHandler(
		&sessionHandler{calls: calls, cfg: cfg, draining: h.draining}, options))
	mux.Handle(fencelockv1connect.NewLockServiceHandler(
		&lockHandler{calls: calls, cfg: cfg, draining: h.draining}, options))
	mux.Handle(fencelockv1connect.NewAdminServiceHandler(&adminHandler{cfg: cfg}, options))
	mux.Handle(grpchealth.NewHandler(&checker{ready: cfg.Ready, draining: h.draining}, options))
	reflector := grpcreflect.NewStaticReflector(append(serviceNames(), grpchealth.HealthV1ServiceName)...)
	mux.Handle(grpcreflect.NewHandlerV1(reflector, options))
	mux.Handle(grpcreflect.NewHandlerV1Alpha(reflector, options))
	h.mux = stampArrival(cfg.Clock, cfg.Limits.BodyTime, mux)
	return h
}

func serviceNames() []string {
	return []string{
		fencelockv1connect.SessionServiceName,
		fencelockv1connect.LockServiceName,
		fencelockv1connect.AdminServiceName,
	}
}

// ServeHTTP implements http.Handler.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) { h.mux.ServeHTTP(w, r) }

// Drain turns health to NOT_SERVING and ends the streams, each after it was told and has answered what is
// in flight. Unary calls go on. It may be called more than once.
func (h *Handler) Drain() { h.drain.Do(func() { close(h.draining) }) }

// edge is the interceptor round every method: a call whose time is already up does not reach the
// store, and every error leaves through the one table.
type edge struct{}

// WrapUnary implements connect.Interceptor.
func (edge) WrapUnary(next connect.UnaryFunc) connect.UnaryFunc {
	return func(ctx context.Context, req connect.AnyRequest) (connect.AnyResponse, error) {
		if err := ctx.Err(); err != nil {
			return nil, translate(ctx, err)
		}
		answer, err := next(ctx, req)
		if err != nil {
			return nil, translate(ctx, err)
		}
		return answer, nil
	}
}

// WrapStreamingClient implements connect.Interceptor; servers have no use for it.
func (edge) WrapStreamingClient(next connect.StreamingClientFunc) connect.StreamingClientFunc {
	return next
}

// WrapStreamingHandler implements connect.Interceptor.
func (edge) WrapStreamingHandler(next connect.StreamingHandlerFunc) connect.StreamingHandlerFunc {
	return func(ctx context.Context, conn connect.StreamingHandlerConn) error {
		return translate(ctx, next(ctx, conn))
	}
}
