// Package telemetry is what the executor shows of itself: metrics, log events and spans. Names and fields are a contract with
// dashboards and people, in docs/contracts/C4-observability.md.
package telemetry
