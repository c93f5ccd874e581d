// Package endpoint is an HTTP server on an address of its own, and the rules of such addresses.
package endpoint
