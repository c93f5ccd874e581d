package remote

import (
	"errors"
	"strings"

	"connectrpc.com/connect"

	"github.com/fencelock/fencelock/adapters/client"
	"github.com/fencelock/fencelock/apps/payout-executor/internal/payout"
	v1 "github.com/fencelock/fencelock/contracts/api/fencelock/payments/v1"
)

// codePrefix stands before the names of refusals on the wire.
const codePrefix = "ERROR_CODE_"

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
		// By its name, as there may be codes that only a newer service knows: nothing was done, and it is not asked again under this grant.
		refused := &payout.RefusedError{Code: payout.Refusal(strings.TrimPrefix(d.GetCode().String(), codePrefix))}
		if refused.Code == payout.WrongState {
			refused.State = stateOf(d.GetState())
		}
		return refused
	}
	return client.Translate(err)
}
