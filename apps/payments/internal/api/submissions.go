package api

import (
	"context"

	"connectrpc.com/connect"
	"go.opentelemetry.io/otel/trace"

	"github.com/fencelock/fencelock/apps/payments/internal/rail"
	paymentsv1 "github.com/fencelock/fencelock/contracts/api/fencelock/payments/v1"
	"github.com/fencelock/fencelock/core/lock"
)

// submissions implements RailService.
type submissions struct {
	proxy  *rail.Proxy
	tracer trace.Tracer
}

// Submit implements paymentsv1connect.RailServiceHandler.
func (s *submissions) Submit(
	ctx context.Context, req *connect.Request[paymentsv1.SubmitRequest],
) (*connect.Response[paymentsv1.SubmitResponse], error) {
	o := rail.Order{
		Payout: req.Msg.GetPayout(), Account: req.Msg.GetAccount(), Amount: req.Msg.GetAmount(), Destination: req.Msg.GetDestination(),
	}
	made, err := under(ctx, s.tracer, "rail.submit", target{o.Payout, o.Account},
		func(ctx context.Context, token lock.Token) (rail.Submission, error) {
			return s.proxy.Submit(ctx, token, o)
		})
	return answered(&paymentsv1.SubmitResponse{Submission: submissionToWire(made)}, err)
}

// Lookup implements paymentsv1connect.RailServiceHandler.
func (s *submissions) Lookup(
	ctx context.Context, req *connect.Request[paymentsv1.LookupRequest],
) (*connect.Response[paymentsv1.LookupResponse], error) {
	to := target{req.Msg.GetPayout(), req.Msg.GetAccount()}
	found, err := under(ctx, s.tracer, "rail.lookup", to,
		func(ctx context.Context, token lock.Token) (*paymentsv1.Submission, error) {
			found, there, err := s.proxy.Lookup(ctx, token, to.payout, to.account)
			if err != nil || !there {
				return nil, err
			}
			return submissionToWire(found), nil
		})
	return answered(&paymentsv1.LookupResponse{Submission: found}, err)
}

// ListSubmissions implements paymentsv1connect.RailServiceHandler.
func (s *submissions) ListSubmissions(
	ctx context.Context, req *connect.Request[paymentsv1.ListSubmissionsRequest],
) (*connect.Response[paymentsv1.ListSubmissionsResponse], error) {
	page, next, err := s.proxy.List(ctx, req.Msg.GetPageSize(), req.Msg.GetPageToken())
	return answered(&paymentsv1.ListSubmissionsResponse{Submissions: each(page, submissionToWire), NextPageToken: next}, err)
}
