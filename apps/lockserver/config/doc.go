// Package config reads the server's configuration: one struct, one key per field, from a YAML file, the
// environment and flags, in rising order, checked as a whole.
//
// A key such as lock.session.ttl is a flag (--lock.session.ttl=15s), a variable
// (FENCELOCK_LOCK_SESSION_TTL) and a place in the file, nested or written out:
//
//	lock:
//	  session.ttl: 15s
//	server.addr: 127.0.0.1:8470
//
// A key that the server does not know is an error wherever it stands, because a misspelt safety setting
// that is silently ignored is worse than a server that does not start.
package config
