package model

import (
	"context"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"

	v1 "github.com/fencelock/fencelock/contracts/api/fencelock/payments/v1"
	"github.com/fencelock/fencelock/contracts/api/fencelock/payments/v1/paymentsv1connect"
)

// rail serves RailService.
type rail struct {
	paymentsv1connect.UnimplementedRailServiceHandler

	w *World
}

// Submit implements RailService.
func (s *rail) Submit(_ context.Context, req *connect.Request[v1.SubmitRequest]) (*connect.Response[v1.SubmitResponse], error) {
	t := token(req.Header())
	call := Call{Service: Rail, Method: "Submit", Payout: req.Msg.GetPayout(), Account: req.Msg.GetAccount(), Token: t}
	return carry(s.w, call, func() (*v1.SubmitResponse, error) {
		if t <= 0 {
			return nil, noToken()
		}
		sent, err := s.w.submit(req.Msg, t)
		if err != nil {
			return nil, err
		}
		return &v1.SubmitResponse{Submission: proto.CloneOf(sent)}, nil
	})
}

func (w *World) submit(req *v1.SubmitRequest, t int64) (*v1.Submission, error) {
	if !w.unfenced {
		if t < w.marks[req.GetAccount()] {
			return nil, FencedOut()
		}
		w.marks[req.GetAccount()] = t
		if w.submission(req.GetPayout()) != nil {
			return nil, refusal(connect.CodeAlreadyExists, v1.ErrorCode_ERROR_CODE_DUPLICATE, 0)
		}
	}
	sent := &v1.Submission{
		Payout: req.GetPayout(), Account: req.GetAccount(), Amount: req.GetAmount(), Destination: req.GetDestination(),
		Token: t, SubmittedAt: stamp(),
	}
	w.submissions = append(w.submissions, sent)
	switch req.GetDestination() {
	case Decline:
		sent.Outcome, sent.Reason = v1.SubmissionOutcome_SUBMISSION_OUTCOME_REJECTED, "declined"
		return sent, nil
	case LostRequest:
		return sent, nil
	}
	w.transfers = append(w.transfers, Transfer{Payout: req.GetPayout(), Destination: req.GetDestination(), Amount: req.GetAmount()})
	if req.GetDestination() != LostReply {
		sent.Outcome, sent.RailReference = v1.SubmissionOutcome_SUBMISSION_OUTCOME_ACKED, "tr-"+req.GetPayout()
	}
	return sent, nil
}

// Lookup implements RailService.
func (s *rail) Lookup(_ context.Context, req *connect.Request[v1.LookupRequest]) (*connect.Response[v1.LookupResponse], error) {
	t := token(req.Header())
	call := Call{Service: Rail, Method: "Lookup", Payout: req.Msg.GetPayout(), Account: req.Msg.GetAccount(), Token: t}
	return carry(s.w, call, func() (*v1.LookupResponse, error) {
		if t <= 0 {
			return nil, noToken()
		}
		if !s.w.unfenced {
			if t < s.w.marks[req.Msg.GetAccount()] {
				return nil, FencedOut()
			}
			s.w.marks[req.Msg.GetAccount()] = t
		}
		sent := s.w.submission(req.Msg.GetPayout())
		if sent == nil {
			return &v1.LookupResponse{}, nil
		}
		answer := proto.CloneOf(sent)
		if sent.GetOutcome() == v1.SubmissionOutcome_SUBMISSION_OUTCOME_UNSPECIFIED && !s.w.silent {
			if n := s.w.transferred(sent.GetPayout()); n > 0 {
				sent.Outcome, sent.RailReference = v1.SubmissionOutcome_SUBMISSION_OUTCOME_ACKED, "tr-"+sent.GetPayout()
				answer = proto.CloneOf(sent)
				answer.Transfers = int32(n) //nolint:gosec // a handful
			}
		}
		return &v1.LookupResponse{Submission: answer}, nil
	})
}

// ListSubmissions implements RailService.
func (s *rail) ListSubmissions(
	_ context.Context, req *connect.Request[v1.ListSubmissionsRequest],
) (*connect.Response[v1.ListSubmissionsResponse], error) {
	return carry(s.w, Call{Service: Rail, Method: "ListSubmissions"}, func() (*v1.ListSubmissionsResponse, error) {
		found, next := page(s.w.submissions, req.Msg.GetPageSize(), req.Msg.GetPageToken(), func(*v1.Submission) bool { return true })
		return &v1.ListSubmissionsResponse{Submissions: found, NextPageToken: next}, nil
	})
}
