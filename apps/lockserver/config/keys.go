package config

import (
	"time"

	"github.com/spf13/pflag"
)

// keys declares every key with its default and its line of help, bound to c.
func keys(c *Config) *pflag.FlagSet {
	fs := pflag.NewFlagSet("lockserver", pflag.ContinueOnError)
	fs.SortFlags = false
	fs.StringVar(&c.Backend, "lock.backend", Etcd, "store of the locks: etcd, postgres")
	fs.DurationVar(&c.SessionTTL, "lock.session.ttl", 15*time.Second,
		"time to live of a session whose opener names none, 2s to 10m")
	fs.Float64Var(&c.SafetyMargin, "lock.client.safety-margin", 0.30,
		"share of a guarantee that clients are told not to use, 0 to 0.9")
	fs.DurationVar(&c.DefaultLease, "lock.default.lease", 0,
		"cap on grants whose acquirer names no lease, 2s to 10m; 0: as long as the session lives")
	fs.IntVar(&c.HandoffLimit, "lock.handoff.limit", 32,
		"grants in a row passed between waiters of this server while others may wait; 0: none")
	fs.DurationVar(&c.MaxWait, "lock.wait.max", time.Hour, "longest wait of one acquire, up to 1h")
	fs.IntVar(&c.WaitersPerKey, "lock.waiters.per-key", 1000, "most waiters for one key on this server")
	fs.IntVar(&c.WaitersTotal, "lock.waiters.total", 10000, "most waiters on this server")
	fs.StringVar(&c.SigningKeyFile, "lock.signing.key-file", "",
		"file of an Ed25519 private key in PEM, readable by the server alone, to sign tokens with; none: tokens are bare numbers")
	fs.StringSliceVar(&c.EtcdEndpoints, "etcd.endpoints", nil,
		"addresses of an etcd cluster, separated by commas; none: an embedded etcd")
	fs.StringVar(&c.EtcdPrefix, "etcd.prefix", "fencelock/", "what stands before every key in etcd")
	fs.StringVar(&c.EtcdDataDir, "etcd.data-dir", "./fencelock-data",
		"directory of the embedded etcd and of this server's notes about the store")
	fs.BoolVar(&c.EtcdUnsafeVersions, "etcd.unsafe-versions", false,
		"admit etcd servers older than 3.5.14, which may lose or repeat tokens")
	fs.StringVar(&c.PostgresURL, "postgres.url", "",
		"database of the locks, such as postgres://role:password@host:5432/database; better given by the variable or the file than as a flag")
	fs.StringVar(&c.PostgresListenURL, "postgres.listen-url", "",
		"the same database without a pooler in between, to listen for notifications; none: postgres.url, unless that is a pooler")
	fs.BoolVar(&c.PostgresPooler, "postgres.pooler", false, "postgres.url leads through a transaction pooler, such as pgbouncer")
	fs.StringVar(&c.PostgresStateDir, "postgres.state-dir", "./fencelock-data", "directory of this server's notes about the database")
	fs.StringVar(&c.ServerAddr, "server.addr", "127.0.0.1:8470", "address of RPC, health and reflection")
	fs.StringVar(&c.AdminAddr, "admin.addr", "127.0.0.1:8471", "address of metrics and probes")
	fs.DurationVar(&c.DrainTimeout, "server.drain-timeout", 15*time.Second,
		"longest time that a stopping server waits for what is in flight, 1s to 10m")
	c.Log.Declare(fs)
	return fs
}
