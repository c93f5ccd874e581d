// Package settings reads a configuration: one key per field, from a YAML file, the environment and flags, in rising order.
//
// A key such as lock.session.ttl is a flag (--lock.session.ttl=15s), a variable
// (FENCELOCK_LOCK_SESSION_TTL) and a place in the file, nested or written out:
//
//	lock:
//	  session.ttl: 15s
//	server.addr: 127.0.0.1:8470
//
// A key that the program does not know is an error wherever it stands, because a misspelt safety setting
// that is silently ignored is worse than a program that does not start. Variables are shared by all programs that run in
// one environment; those of the other programs of this project pass (see sections.go).
package settings
