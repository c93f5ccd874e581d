// Package form checks what callers of the payout system send, before any store is asked. What it refuses is
// [lock.ErrInvalid] with the name of the field.
package form
