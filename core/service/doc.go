// Package service holds the use cases over the ports: sessions, acquire with
// wait, release with handoff, revocation, inspection.
package service
