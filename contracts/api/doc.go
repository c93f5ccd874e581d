// Package api holds the wire contract of the service: the protobuf files under
// proto and the Go code generated from them under fencelock/v1.
package api
