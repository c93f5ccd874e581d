package config

import (
	"io"
	"log/slog"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/fencelock/fencelock/apps/program/database"
	"github.com/fencelock/fencelock/apps/program/logging"
	"github.com/fencelock/fencelock/apps/program/settings"
)

// The backends.
const (
	Etcd     = "etcd"
	Postgres = "postgres"
)

// Config is all that can be set. Names of keys, defaults and usage lines are in keys.go.
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
	// SigningKeyFile names the private key that tokens are signed with; none: they are bare numbers.
	SigningKeyFile string
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
	// Log is how severe and in what form events are logged.
	Log logging.Config
}

// Load reads the configuration from args (without the program's name and command), env (as os.Environ gives it) and the file
// that args name. Every error is one line without passwords, and means that nothing should start; [settings.ErrHelp] says that
// args ask for help.
func Load(args, env []string) (Config, error) {
	var c Config
	err := settings.Load(keys(&c), args, env, func() error { return c.validate() }) //nolint:gocritic // c.validate would judge what c is now
	return c, err
}

// Usage is the text of --help.
func Usage() string { return keys(new(Config)).FlagUsages() }

// Print writes c in a form that can be read back as a file, with passwords replaced.
func (c Config) Print(w io.Writer) error {
	return settings.Print(w, bound(&c), func(key, value string) string {
		switch key {
		case "etcd.endpoints":
			return settings.ShownURLs(value)
		case "postgres.url", "postgres.listen-url":
			return database.Shown(value)
		}
		return value
	})
}

// bound are the keys over the values of c.
func bound(c *Config) *pflag.FlagSet { return settings.Bound(c, keys) }

// Logger logs to w, as configured.
func (c Config) Logger(w io.Writer) *slog.Logger { return c.Log.Logger(w) }

// Store names the store without a password.
func (c Config) Store() string {
	switch {
	case c.Backend == Postgres:
		return "PostgreSQL at " + c.Database()
	case c.Embedded():
		return "embedded etcd in " + c.EtcdDataDir
	}
	return "etcd at " + settings.ShownURLs(strings.Join(c.EtcdEndpoints, ","))
}

// Database names the database of PostgresURL without its secrets: hosts and name.
func (c Config) Database() string { return database.Place(c.PostgresURL) }

// Embedded reports whether the server runs its own etcd.
func (c Config) Embedded() bool { return c.Backend == Etcd && len(c.EtcdEndpoints) == 0 }
