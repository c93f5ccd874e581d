// Package remote is the payment resource and the proxy before the rail, as an execution, the pool and the reconciler see them, over
// Connect. It sends each call once: no transport, redirect or interceptor here repeats one.
package remote
