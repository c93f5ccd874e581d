// Package admin serves what machines that look after a program ask: metrics, liveness, readiness.
package admin
