package rpc

import (
	"context"
	"slices"

	"connectrpc.com/connect"
	"connectrpc.com/grpchealth"
)

// checker answers gRPC health checks: the whole process ("") and each service are SERVING while the
// store can grant and nothing drains.
type checker struct {
	ready    func(context.Context) error
	draining <-chan struct{}
}

// Check implements grpchealth.Checker.
func (c *checker) Check(ctx context.Context, req *grpchealth.CheckRequest) (*grpchealth.CheckResponse, error) {
	if req.Service != "" && !slices.Contains(serviceNames(), req.Service) {
		return nil, plainError(connect.CodeNotFound, "unknown service")
	}
	status := grpchealth.StatusNotServing
	if !isClosed(c.draining) && c.ready(ctx) == nil {
		status = grpchealth.StatusServing
	}
	return &grpchealth.CheckResponse{Status: status}, nil
}

func isClosed(ch <-chan struct{}) bool {
	select {
	case <-ch:
		return true
	default:
		return false
	}
}
