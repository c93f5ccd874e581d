package stack

import (
	"context"
	"time"

	"connectrpc.com/connect"
)

// insist sends a call again for as long as it is answered that it may be: every call of a drill is safe to repeat, and a busy database, or
// one that just gave up the work of a killed program, is not what a drill wants to see.
func insist() connect.ClientOption {
	return connect.WithInterceptors(connect.UnaryInterceptorFunc(func(next connect.UnaryFunc) connect.UnaryFunc {
		return func(ctx context.Context, req connect.AnyRequest) (connect.AnyResponse, error) {
			ctx, cancel := context.WithTimeout(ctx, patience)
			defer cancel()
			tick := time.NewTicker(lookEvery)
			defer tick.Stop()
			for {
				resp, err := next(ctx, req)
				if connect.CodeOf(err) != connect.CodeUnavailable {
					return resp, err
				}
				select {
				case <-tick.C:
				case <-ctx.Done():
					return resp, err
				}
			}
		}
	}))
}
