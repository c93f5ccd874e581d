package guard

import (
	"context"
	"errors"

	"connectrpc.com/connect"

	"github.com/fencelock/fencelock/adapters/rpc"
	"github.com/fencelock/fencelock/core/fence"
	"github.com/fencelock/fencelock/core/lock"
)

// interceptor guards the unary procedures of a service.
type interceptor struct {
	config

	reader fence.Reader
	keyOf  func(connect.AnyRequest) (lock.Key, error)
}

// NewInterceptor returns an interceptor for the handlers of a service. keyOf names the lock that protects what a
// request writes to; its errors refuse the request. Every procedure is guarded that [WithUnguarded] does not name;
// streams cannot be, since their messages come after the header, and so are refused as unimplemented unless they are named there.
func NewInterceptor(
	reader fence.Reader, keyOf func(connect.AnyRequest) (lock.Key, error), opts ...Option,
) connect.Interceptor {
	return &interceptor{config: newConfig(opts), reader: reader, keyOf: keyOf}
}

// WrapUnary implements connect.Interceptor.
func (i *interceptor) WrapUnary(next connect.UnaryFunc) connect.UnaryFunc {
	return func(ctx context.Context, req connect.AnyRequest) (connect.AnyResponse, error) {
		if req.Spec().IsClient || i.unguarded[req.Spec().Procedure] {
			return next(ctx, req)
		}
		key, err := i.keyOf(req)
		if err != nil {
			return nil, translate(ctx, err)
		}
		admitted, leave, err := i.admit(ctx, i.reader, key, req.Header())
		if err != nil {
			return nil, rpc.Translate(ctx, err)
		}
		defer leave()
		answer, err := next(admitted, req)
		if err != nil {
			return nil, translate(ctx, err)
		}
		return answer, nil
	}
}

// WrapStreamingClient implements connect.Interceptor; a client is not guarded.
func (*interceptor) WrapStreamingClient(next connect.StreamingClientFunc) connect.StreamingClientFunc {
	return next
}

// WrapStreamingHandler implements connect.Interceptor.
func (i *interceptor) WrapStreamingHandler(next connect.StreamingHandlerFunc) connect.StreamingHandlerFunc {
	return func(ctx context.Context, conn connect.StreamingHandlerConn) error {
		if i.unguarded[conn.Spec().Procedure] {
			return next(ctx, conn)
		}
		return connect.NewError(connect.CodeUnimplemented, errors.New("streams cannot be guarded by a fencing token"))
	}
}

// translate leaves alone what the service has put into its own words.
func translate(ctx context.Context, err error) error {
	if _, already := errors.AsType[*connect.Error](err); already || lock.CodeOf(err) == "" {
		return err
	}
	return rpc.Translate(ctx, err)
}
