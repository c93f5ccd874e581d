// Package bank is a payment rail for tests and experiments: JSON over HTTP, and deliberately not idempotent. Every POST
// /transfers that arrives is executed, also the second one for the same reference; that is the shape of resource for which a
// lock is needed, and for which a lock alone is not enough.
//
//	POST /transfers                 {"reference":"p1","amount":100,"destination":"d"}
//	                                201 executed, 422 declined, 400 not understood (nothing was done)
//	GET  /transfers[?reference=p1]  what was received, oldest first; changes nothing
//	GET  /faults, POST /faults      {"latency":"200ms","decline":0.1,"lose_reply":0.1}
//
// What is executed or declined is on disk before the answer: one line of JSON each in a log that is only ever appended to, and
// read back at the start. It is the evidence of how often money moved.
//
// Three destinations have a meaning: "decline" is declined, "lost-reply" is executed and then the connection is closed without
// an answer, "lost-request" closes the connection and executes nothing.
package bank
