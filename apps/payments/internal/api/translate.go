package api

import (
	"context"
	"errors"

	"connectrpc.com/connect"

	"github.com/fencelock/fencelock/adapters/rpc"
	"github.com/fencelock/fencelock/apps/payments/internal/refusal"
	paymentsv1 "github.com/fencelock/fencelock/contracts/api/fencelock/payments/v1"
)

// wireCodes is the one table from refusals to the wire. Errors of core/lock have that of adapters/rpc.
func wireCodes(code refusal.Code) (paymentsv1.ErrorCode, connect.Code) {
	switch code {
	case refusal.NotFound:
		return paymentsv1.ErrorCode_ERROR_CODE_NOT_FOUND, connect.CodeNotFound
	case refusal.WrongState:
		return paymentsv1.ErrorCode_ERROR_CODE_WRONG_STATE, connect.CodeFailedPrecondition
	case refusal.Different:
		return paymentsv1.ErrorCode_ERROR_CODE_DIFFERENT, connect.CodeAlreadyExists
	case refusal.Duplicate:
		return paymentsv1.ErrorCode_ERROR_CODE_DUPLICATE, connect.CodeAlreadyExists
	case refusal.InsufficientFunds:
		return paymentsv1.ErrorCode_ERROR_CODE_INSUFFICIENT_FUNDS, connect.CodeFailedPrecondition
	case refusal.FundsReserved:
		return paymentsv1.ErrorCode_ERROR_CODE_FUNDS_RESERVED, connect.CodeFailedPrecondition
	case refusal.WrongBalance:
		return paymentsv1.ErrorCode_ERROR_CODE_WRONG_BALANCE, connect.CodeFailedPrecondition
	}
	return paymentsv1.ErrorCode_ERROR_CODE_UNSPECIFIED, connect.CodeInternal
}

// translate turns what a method returned into what crosses the wire. ctx is the caller's.
func translate(ctx context.Context, err error) error {
	refused, ok := errors.AsType[*refusal.Error](err)
	if !ok {
		return rpc.Translate(ctx, err)
	}
	code, status := wireCodes(refused.Code)
	wire := connect.NewError(status, errors.New(refused.Message))
	if detail, err := connect.NewErrorDetail(&paymentsv1.ErrorDetail{Code: code, State: stateToWire(refused.State)}); err == nil {
		wire.AddDetail(detail)
	}
	return wire //nolint:wrapcheck // this is the wire's form
}

// edge is the interceptor round every method: each error leaves through the one table.
func edge() connect.UnaryInterceptorFunc {
	return func(next connect.UnaryFunc) connect.UnaryFunc {
		return func(ctx context.Context, req connect.AnyRequest) (connect.AnyResponse, error) {
			answer, err := next(ctx, req)
			if err != nil {
				return nil, translate(ctx, err)
			}
			return answer, nil
		}
	}
}
