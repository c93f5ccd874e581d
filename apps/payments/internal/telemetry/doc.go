// Package telemetry turns what the programs of the payout system do and refuse into metrics and log events. Every series is
// there from the start, at 0. Ids and tokens stand in log events and never in labels.
package telemetry
