// Package rpc serves the wire contract fencelock.v1 over the core service: Connect, gRPC and
// gRPC-Web on one port, JSON and binary, over HTTP/1.1 and cleartext HTTP/2.
//
// # Two paths, one set of rules
//
// The unary methods and the operations inside the frames of Attach end in the same functions
// (type calls): the same parsing, the same service calls, the same errors. Only the envelope differs:
// a unary error is a Connect error with an ErrorDetail attached, an error inside a frame is the
// ErrorDetail alone.
//
// # Errors
//
// translate.go holds the one table from the closed set of errors to Connect codes. What a driver
// said (the cause) never crosses the wire. A call that ends because its caller's deadline passed or
// its caller left is deadline_exceeded or canceled, with a detail that says whether the store may have
// carried it out. Anything outside the closed set is internal, with a message that tells nothing.
// Requests that never reach a method (an undecodable body, a wrong verb, a body over the limit) are
// answered by Connect itself, with its code and no detail.
//
// # Secrets
//
// A session id is a capability. It is echoed only to a caller that presented it (OpenSession, and
// events of sessions presented on the stream); everywhere else a hash stands for it. A request
// id is shown only to the session that holds the grant, because it would allow another caller nothing
// but would tell what the holder retries.
//
// # Strict JSON
//
// Unlike Connect's default, JSON with an unknown field is refused: a misspelt "lease" or "expectedToken"
// would otherwise be dropped in silence and change the meaning of the call. The binary codec keeps
// unknown fields harmless, so newer clients may talk to older servers.
//
// # Time
//
// The moment at which a request arrived is taken before its body is read (unary) or when
// its frame was read (Attach), and travels with a heartbeat, so that the service can drop one
// that is too old to count. No call has a fixed write timeout, since waits and streams are long;
// instead each message of a stream must be taken by the peer within a limit.
package rpc
