package config

import (
	"time"
)

// The backends.
const (
	Etcd     = "etcd"
	Postgres = "postgres"
)

// Config is all that can be set. The tag names the key; defaults and usage lines are in keys.go.
type Config struct {
	// Backend is the store: [Etcd] or [Postgres].
	Backend string
	// SessionTTL is the time to live of a session whose opener names none: 2s to 10m.
	SessionTTL time.Duration
	// SafetyMargin is the share of a guarantee that clients are told not to use, 0 to 0.9.
	SafetyMargin float64
	// DefaultLease caps grants whose acquirer names no lease; 0 binds them to their session alone.
	DefaultLease time.Duration
	// HandoffLimit is how many grants in a row pass between waiters of this server while others may wait.
	HandoffLimit int
	// MaxWait caps the wait of one acquire.
	MaxWait time.Duration
	// WaitersPerKey and WaitersTotal bound the queues of this server.
	WaitersPerKey int
	WaitersTotal  int
	// EtcdEndpoints are the addresses of an etcd cluster; none means an embedded one.
	EtcdEndpoints []string
	// EtcdPrefix stands before every key in etcd.
	EtcdPrefix string
	// EtcdDataDir holds the embedded etcd and this server's own notes about the store.
	EtcdDataDir string
	// EtcdUnsafeVersions admits etcd servers older than 3.5.14.
	EtcdUnsafeVersions bool
	// PostgresURL leads to the database of the locks. It may hold a password: show it by [Config.Print] and
	// [Config.Database] only.
	PostgresURL string
	// PostgresListenURL leads to the same database without a pooler in between, to listen for notifications. Empty: PostgresURL,
	// or, with PostgresPooler, nowhere. As secret as PostgresURL.
	PostgresListenURL string
	// PostgresPooler says that PostgresURL leads through a transaction pooler.
	PostgresPooler bool
	// PostgresStateDir holds this server's own note of the highest token seen.
	PostgresStateDir string
	// ServerAddr is where RPC, health and reflection listen.
	ServerAddr string
	// AdminAddr is where metrics and probes listen.
	AdminAddr string
	// DrainTimeout bounds how long a stopping server waits for what is in flight.
	DrainTimeout time.Duration
	// LogLevel is debug, info, warn or error.
	LogLevel string
	// LogFormat is json or text.
	LogFormat string
}

// Embedded reports whether the server runs its own etcd.
func (c Config) Embedded() bool { return c.Backend == Etcd && len(c.EtcdEndpoints) == 0 }
