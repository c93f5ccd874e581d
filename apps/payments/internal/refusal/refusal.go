package refusal

import "errors"

// Code is one of the refusals. Each is a value of fencelock.payments.v1.ErrorCode on the wire.
type Code string

// The refusals.
const (
	// NotFound: there is no such account or payout.
	NotFound Code = "NOT_FOUND"
	// WrongState: the payout is in another state than the call needs.
	WrongState Code = "WRONG_STATE"
	// Different: something of that name exists with other values.
	Different Code = "DIFFERENT"
	// Duplicate: the payout was submitted before; nothing was sent.
	Duplicate Code = "DUPLICATE"
	// InsufficientFunds: the balance is below the amount; nothing was sent.
	InsufficientFunds Code = "INSUFFICIENT_FUNDS"
	// FundsReserved: the balance covers the payout, but not beside others that the rail may have taken and the ledger does not show yet;
	// nothing was sent. Once their fate is known the account can pay it, or the balance is below the amount.
	FundsReserved Code = "FUNDS_RESERVED"
	// WrongBalance: the balance to be written is not the one before less the amount; nothing was written.
	WrongBalance Code = "WRONG_BALANCE"
)

// Error is a call that was refused and changed nothing.
type Error struct {
	Code Code
	// Message is safe to show to any caller.
	Message string
	// State is the state of the payout, for [WrongState].
	State string
}

// New returns an Error.
func New(code Code, message string) *Error { return &Error{Code: code, Message: message} }

// Error implements error.
func (e *Error) Error() string { return e.Message }

// CodeOf returns the code of err, or "" if err is no refusal.
func CodeOf(err error) Code {
	if e, ok := errors.AsType[*Error](err); ok {
		return e.Code
	}
	return ""
}
