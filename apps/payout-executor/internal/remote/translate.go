package remote

import (
	"errors"

	"connectrpc.com/connect"

	"github.com/fencelock/fencelock/adapters/client"
	"github.com/fencelock/fencelock/apps/payout-executor/internal/payout"
	v1 "github.com/fencelock/fencelock/contracts/api/fencelock/payments/v1"
)

// translate turns an error of a call into one of the closed set of core/lock, or a [payout.RefusedError].
func translate(err error) error {
	var wire *connect.Error
	if !errors.As(err, &wire) {
		return client.Translate(err)
	}
	for _, detail := range wire.Details() {
		value, bad := detail.Value()
		if bad != nil {
			continue
		}
		d, ok := value.(*v1.ErrorDetail)
		if !ok {
			continue
		}
		if code, known := refusals(d.GetCode()); known {
			refused := &payout.RefusedError{Code: code}
			if code == payout.WrongState {
				refused.State = stateOf(d.GetState())
			}
			return refused
		}
	}
	return client.Translate(err)
}

func refusals(code v1.ErrorCode) (known payout.Refusal, ok bool) {
	switch code {
	case v1.ErrorCode_ERROR_CODE_NOT_FOUND:
		return payout.NotFound, true
	case v1.ErrorCode_ERROR_CODE_WRONG_STATE:
		return payout.WrongState, true
	case v1.ErrorCode_ERROR_CODE_DIFFERENT:
		return payout.Different, true
	case v1.ErrorCode_ERROR_CODE_DUPLICATE:
		return payout.Duplicate, true
	case v1.ErrorCode_ERROR_CODE_INSUFFICIENT_FUNDS:
		return payout.InsufficientFunds, true
	case v1.ErrorCode_ERROR_CODE_FUNDS_RESERVED:
		return payout.FundsReserved, true
	case v1.ErrorCode_ERROR_CODE_WRONG_BALANCE:
		return payout.WrongBalance, true
	case v1.ErrorCode_ERROR_CODE_UNSPECIFIED:
	}
	return "", false
}
