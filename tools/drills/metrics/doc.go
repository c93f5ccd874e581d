// Package metrics reads what a program exposes for Prometheus, as far as a drill needs it: names and values of series.
package metrics
