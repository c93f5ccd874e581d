package config

import (
	"fmt"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/fencelock/fencelock/apps/program/database"
	"github.com/fencelock/fencelock/apps/program/endpoint"
	"github.com/fencelock/fencelock/apps/program/settings"
	"github.com/fencelock/fencelock/core/lock"
)

// validate checks all fields together and names the first key that cannot be.
func (c Config) validate() error {
	for _, check := range []func() error{c.checkBackend, c.checkTimes, c.checkLimits, c.checkServer} {
		if err := check(); err != nil {
			return err
		}
	}
	return nil
}

func (c Config) checkBackend() error {
	switch c.Backend {
	case Etcd:
		// Etcd is the default. Who has only forgotten to choose the backend would get an empty store of this server's own,
		// and locks that others hold already.
		if unused := c.Unused(); len(unused) > 0 {
			return fmt.Errorf("%s: is set, but lock.backend is etcd", unused[0])
		}
		return c.checkEtcd()
	case Postgres:
		return c.checkPostgres()
	}
	return fmt.Errorf("lock.backend: %q is none of etcd, postgres", c.Backend)
}

// Unused lists the keys that are set for the other backend.
func (c Config) Unused() []string {
	other := Etcd
	if c.Backend == Etcd {
		other = Postgres
	}
	var unused []string
	bound(&c).VisitAll(func(f *pflag.Flag) {
		if strings.HasPrefix(f.Name, other+".") && f.Value.String() != f.DefValue {
			unused = append(unused, f.Name)
		}
	})
	return unused
}

func (c Config) checkTimes() error {
	if _, err := lock.RoundTTL("lock.session.ttl", c.SessionTTL); err != nil {
		return err
	}
	if c.DefaultLease != 0 {
		if _, err := lock.RoundTTL("lock.default.lease", c.DefaultLease); err != nil {
			return err
		}
	}
	if err := between("lock.wait.max", c.MaxWait, time.Second, time.Hour); err != nil {
		return err
	}
	return between("server.drain-timeout", c.DrainTimeout, time.Second, 10*time.Minute)
}

func between(key string, d, low, high time.Duration) error {
	if d < low || d > high {
		return fmt.Errorf("%s: must be %v to %v", key, low, high)
	}
	return nil
}

func (c Config) checkLimits() error {
	switch {
	case !(c.SafetyMargin >= 0 && c.SafetyMargin <= 0.9): // also refuses NaN
		return fmt.Errorf("lock.client.safety-margin: must be 0 to 0.9")
	case c.HandoffLimit < 0:
		return fmt.Errorf("lock.handoff.limit: must not be negative")
	case c.WaitersPerKey < 1:
		return fmt.Errorf("lock.waiters.per-key: must be at least 1")
	case c.WaitersTotal < c.WaitersPerKey:
		return fmt.Errorf("lock.waiters.total: must be at least lock.waiters.per-key")
	}
	return nil
}

func (c Config) checkEtcd() error {
	if c.EtcdPrefix == "" {
		return fmt.Errorf("etcd.prefix: must not be empty")
	}
	if c.EtcdDataDir == "" {
		return fmt.Errorf("etcd.data-dir: must not be empty")
	}
	for _, endpoint := range c.EtcdEndpoints {
		if strings.ContainsAny(endpoint, " \t") {
			return fmt.Errorf("etcd.endpoints: %q is not an address", endpoint)
		}
	}
	return nil
}

func (c Config) checkPostgres() error {
	if c.PostgresURL == "" {
		return fmt.Errorf("postgres.url: must be set where lock.backend is postgres, best by the variable %s", settings.Variable("postgres.url"))
	}
	if err := database.Check("postgres.url", c.PostgresURL); err != nil {
		return err
	}
	if c.PostgresListenURL != "" {
		if err := database.Check("postgres.listen-url", c.PostgresListenURL); err != nil {
			return err
		}
	}
	if c.PostgresStateDir == "" {
		return fmt.Errorf("postgres.state-dir: must not be empty")
	}
	return nil
}

func (c Config) checkServer() error {
	if err := endpoint.Check("server.addr", c.ServerAddr); err != nil {
		return err
	}
	if err := endpoint.Check("admin.addr", c.AdminAddr); err != nil {
		return err
	}
	return c.Log.Check()
}

// OpenToNetwork lists the keys of addresses that other machines can reach.
func (c Config) OpenToNetwork() []string {
	var open []string
	if endpoint.IsOpen(c.ServerAddr) {
		open = append(open, "server.addr")
	}
	if endpoint.IsOpen(c.AdminAddr) {
		open = append(open, "admin.addr")
	}
	return open
}
