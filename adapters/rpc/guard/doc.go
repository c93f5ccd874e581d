// Package guard puts a fence before the handlers of a service: a Connect interceptor and a middleware for net/http. Both read the token
// from the header Fencelock-Token and hand it to the handler in the context.
//
// # Two ways to use it
//
// Without marks it only reads: is there one token, is it in its form, and, with a [fence.Verifier], was it granted
// for the very key that this request writes under. The handler takes the token from the context ([Token]) and shows it to the
// guard inside its own transaction (adapters/postgres/guard, adapters/etcd/guard). That is the way for
// whoever has a transaction: whatever happens between this check and the write, the transaction decides.
//
// With marks ([WithMarks]) it admits the token as well, for resources that have no transactions: files, a device, a service of others.
// Since the check is then a step of its own, a [Gate] lets the writes of one resource through one at a time, so
// that an admitted write has ended before a newer token is admitted. That holds
//
//   - within one process: where several processes write to the resource, a write that one of them has admitted may be overtaken by
//     a newer token at another. Several processes need the guard in the transaction;
//   - for a handler whose write has ended when it returns, whatever it returns. One that leaves the write
//     behind in a goroutine, or a middleware between this one and the handler that gives up waiting for
//     it (http.TimeoutHandler), lets a newer one overtake. Put such a middleware outside;
//   - while the process lives: a request that it has sent to another service before it died may arrive later.
//
// # What is refused
//
//	                                        HTTP   Connect
//	no token                                428    invalid_argument
//	two headers, a list, not in its form    400    invalid_argument
//	not signed, or not for this key         403    permission_denied
//	fenced out                              412    failed_precondition
//	the marks could not be asked            503    unavailable
//	the caller's time was up while it       503    deadline_exceeded
//	waited for its turn                            or canceled
//
// Over HTTP the body is JSON: {"code": "FENCED_OUT", "message": "…", "details": {"presented": "33", "highest": "34"}}. Connect errors carry
// the fencelock.v1.ErrorDetail of the lock service itself, with the same code and details. The errors of the closed set that a
// handler returns under the interceptor are translated in the same way; all its other errors are left alone.
package guard
