package remote

import (
	"strings"

	"github.com/fencelock/fencelock/apps/payout-executor/internal/payout"
	v1 "github.com/fencelock/fencelock/contracts/api/fencelock/payments/v1"
	"github.com/fencelock/fencelock/core/lock"
)

// statePrefix stands before the names of states on the wire.
const statePrefix = "PAYOUT_STATE_"

// stateOf is a state by its name on the wire. One of a newer service is kept as it is, and nothing can be done with it.
func stateOf(s v1.PayoutState) payout.State {
	return payout.State(strings.TrimPrefix(s.String(), statePrefix))
}

func wireState(s payout.State) v1.PayoutState {
	return v1.PayoutState(v1.PayoutState_value[statePrefix+string(s)])
}

func payoutOf(p *v1.Payout) payout.Payout {
	return payout.Payout{
		Ref:         payout.Ref{ID: p.GetId(), Account: p.GetAccount()},
		Amount:      p.GetAmount(),
		Destination: p.GetDestination(),
		State:       stateOf(p.GetState()),
		Token:       lock.Token(p.GetToken()),
		Reference:   p.GetRailReference(),
		Reason:      p.GetReason(),
		CreatedAt:   p.GetCreatedAt().AsTime(),
	}
}

func pictureOf(p *v1.Payout, a *v1.Account) payout.Picture {
	return payout.Picture{Payout: payoutOf(p), Balance: a.GetBalance()}
}

func submissionOf(s *v1.Submission) payout.Submission {
	return payout.Submission{
		Ref:       payout.Ref{ID: s.GetPayout(), Account: s.GetAccount()},
		Amount:    s.GetAmount(),
		Token:     lock.Token(s.GetToken()),
		Outcome:   outcomeOf(s.GetOutcome()),
		Reference: s.GetRailReference(),
		Reason:    s.GetReason(),
		Transfers: int(s.GetTransfers()),
	}
}

// outcomeOf takes an outcome that only a newer proxy knows for one that is not known.
func outcomeOf(o v1.SubmissionOutcome) payout.SubmissionOutcome {
	switch o {
	case v1.SubmissionOutcome_SUBMISSION_OUTCOME_ACKED:
		return payout.Acked
	case v1.SubmissionOutcome_SUBMISSION_OUTCOME_REJECTED:
		return payout.Rejected
	case v1.SubmissionOutcome_SUBMISSION_OUTCOME_UNSPECIFIED:
	}
	return payout.Unknown
}
