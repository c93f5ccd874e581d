// Package lock holds the words of the service: keys, owners, sessions, tokens,
// grants, and the closed set of errors that every backend and every server
// answers with. It knows no store and no transport.
package lock
