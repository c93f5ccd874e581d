// Package tracing makes the tracers of programs.
package tracing
