package config

import (
	"io"
	"log/slog"
	"os"
	"strconv"
	"time"

	"github.com/spf13/pflag"

	"github.com/fencelock/fencelock/apps/program/logging"
	"github.com/fencelock/fencelock/apps/program/settings"
	"github.com/fencelock/fencelock/core/lock"
)

// Config is all that can be set. Names of keys, defaults and usage lines are in keys.go.
type Config struct {
	// LockServers are the addresses of lock servers, tried in turn.
	LockServers []string
	// Payment is the URL of the payment resource.
	Payment string
	// Rail is the URL of the proxy before the rail.
	Rail string
	// RailLog is the URL of the rail's own listing of transfers, for the reconciler; empty: it is not compared.
	RailLog string
	// AdminAddr is where metrics and probes listen.
	AdminAddr string
	// SessionTTL is the time to live of the executor's session: 2s to 10m.
	SessionTTL time.Duration
	// Concurrency is how many payouts are executed at once, each of another account: 1 to 256.
	Concurrency int
	// PollInterval is how often an idle executor asks for payouts, give or take a half: 10ms to 1m.
	PollInterval time.Duration
	// Owner says who asks for locks, for people and logs. Empty: host name and process id.
	Owner string
	// StopTimeout bounds how long a stopping executor waits for the work in hand: 1s to 10m.
	StopTimeout time.Duration
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
	return settings.Print(w, settings.Bound(&c, keys), func(key, value string) string {
		switch key {
		case "payout.lock-servers", "payout.payment", "payout.rail", "payout.rail-log":
			return settings.ShownURLs(value)
		}
		return value
	})
}

// Logger logs to w, as configured.
func (c Config) Logger(w io.Writer) *slog.Logger { return c.Log.Logger(w) }

// Who is Owner, or the host's name and the process id, cut to what an owner may be.
func (c Config) Who() string {
	if c.Owner != "" {
		return c.Owner
	}
	host, _ := os.Hostname()
	pid := ":" + strconv.Itoa(os.Getpid())
	owner := host[:min(len(host), lock.MaxOwnerRunes-len(pid))] + pid
	if _, err := lock.NewOwner(owner); err != nil {
		return "payout-executor" + pid
	}
	return owner
}

// keys declares every key with its default and its line of help, bound to c.
func keys(c *Config) *pflag.FlagSet {
	fs := pflag.NewFlagSet("payout-executor", pflag.ContinueOnError)
	fs.SortFlags = false
	fs.StringSliceVar(&c.LockServers, "payout.lock-servers", []string{"http://127.0.0.1:8470"},
		"addresses of lock servers, separated by commas, tried in turn")
	fs.StringVar(&c.Payment, "payout.payment", "http://127.0.0.1:8480", "URL of the payment resource")
	fs.StringVar(&c.Rail, "payout.rail", "http://127.0.0.1:8482", "URL of the proxy before the rail")
	fs.StringVar(&c.RailLog, "payout.rail-log", "",
		"URL of the rail's own listing of transfers, for reconcile, such as http://127.0.0.1:8484/transfers; none: it is not compared")
	fs.StringVar(&c.AdminAddr, "payout.admin-addr", "127.0.0.1:8486", "address of metrics and probes")
	fs.DurationVar(&c.SessionTTL, "payout.session-ttl", 15*time.Second, "time to live of the executor's session, 2s to 10m")
	fs.IntVar(&c.Concurrency, "payout.concurrency", 8, "most payouts at once, each of another account, 1 to 256")
	fs.DurationVar(&c.PollInterval, "payout.poll-interval", time.Second,
		"how often an idle executor asks for payouts, give or take a half, 10ms to 1m")
	fs.StringVar(&c.Owner, "payout.owner", "", "who asks for locks, for people and logs; none: host name and process id")
	fs.DurationVar(&c.StopTimeout, "payout.stop-timeout", 30*time.Second,
		"longest time that a stopping executor waits for the work in hand, 1s to 10m")
	c.Log.Declare(fs)
	return fs
}
