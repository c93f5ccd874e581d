// Package port declares what the service asks of a store. The ports are small
// and lease-free: no type here speaks of the mechanism by which a store keeps
// sessions alive, so a caller cannot tell one backend from another.
//
// Rules for every method, beyond those of its own comment:
//
//   - The context bounds the call. A call ended by its context returns
//     [lock.ErrContention], ambiguous if the store may have carried it out.
//   - A store that cannot be reached, is slow or has no leader yields
//     [lock.ErrContention] or [lock.ErrNotLeader], never lost, dead or held
//     (clause FAIL-01).
//   - Inputs are validated by the service; an adapter may assume that keys,
//     ids and durations are well formed.
//   - Methods are safe for concurrent use.
package port
