// Package telemetry turns what the service reports into metrics, log events and attributes of spans.
//
// Metrics carry only the backend and an outcome as labels. Keys, owners, sessions and tokens would make
// one series each: they stand in log events (a session as its hash) and in spans.
package telemetry
