package remote

import (
	"context"
	"net/http"

	"connectrpc.com/connect"

	"github.com/fencelock/fencelock/apps/payout-executor/internal/payout"
	v1 "github.com/fencelock/fencelock/contracts/api/fencelock/payments/v1"
	"github.com/fencelock/fencelock/contracts/api/fencelock/payments/v1/paymentsv1connect"
)

// Rail is the proxy before the rail. It implements [payout.Rail] and lists what was submitted.
type Rail struct {
	rpc paymentsv1connect.RailServiceClient
}

// NewRail returns the proxy at a URL.
func NewRail(c *http.Client, url string) *Rail {
	return &Rail{rpc: paymentsv1connect.NewRailServiceClient(c, url, options()...)}
}

// Submit implements [payout.Rail].
func (s *Rail) Submit(ctx context.Context, token payout.Token, p payout.Payout) (payout.Submission, error) {
	resp, err := s.rpc.Submit(ctx, request(token, &v1.SubmitRequest{
		Payout: p.ID, Account: p.Account, Amount: p.Amount, Destination: p.Destination,
	}))
	if err != nil {
		return payout.Submission{}, translate(err)
	}
	return submissionOf(resp.Msg.GetSubmission()), nil
}

// Lookup implements [payout.Rail].
func (s *Rail) Lookup(ctx context.Context, token payout.Token, ref payout.Ref) (sent payout.Submission, there bool, err error) {
	resp, err := s.rpc.Lookup(ctx, request(token, &v1.LookupRequest{Payout: ref.ID, Account: ref.Account}))
	if err != nil {
		return payout.Submission{}, false, translate(err)
	}
	if resp.Msg.GetSubmission() == nil {
		return payout.Submission{}, false, nil
	}
	return submissionOf(resp.Msg.GetSubmission()), true, nil
}

// List returns a page of what was submitted, oldest first. next is empty on the last page. Errors are those of [payout.Rail].
func (s *Rail) List(ctx context.Context, size int, token string) (found []payout.Submission, next string, err error) {
	req := &v1.ListSubmissionsRequest{PageSize: int32(size), PageToken: token} //nolint:gosec // at most 1000
	resp, err := s.rpc.ListSubmissions(ctx, connect.NewRequest(req))
	if err != nil {
		return nil, "", translate(err)
	}
	for _, sent := range resp.Msg.GetSubmissions() {
		found = append(found, submissionOf(sent))
	}
	return found, resp.Msg.GetNextPageToken(), nil
}

// Ping asks whether the proxy answers.
func (s *Rail) Ping(ctx context.Context) error {
	_, _, err := s.List(ctx, 1, "")
	return err
}
