package config

import (
	"fmt"
	"net/url"
	"strings"
	"time"

	"github.com/fencelock/fencelock/apps/program/endpoint"
	"github.com/fencelock/fencelock/core/lock"
)

// maxConcurrency bounds the connections to each service.
const maxConcurrency = 256

// validate names the first key that cannot be.
func (c Config) validate() error {
	for _, check := range []func() error{c.checkAddresses, c.checkTimes, c.checkRest} {
		if err := check(); err != nil {
			return err
		}
	}
	return nil
}

func (c Config) checkAddresses() error {
	if len(c.LockServers) == 0 {
		return fmt.Errorf("payout.lock-servers: must not be empty: without a lock nothing is executed")
	}
	for _, address := range []struct{ key, url string }{{"payout.payment", c.Payment}, {"payout.rail", c.Rail}} {
		if err := checkURL(address.key, address.url); err != nil {
			return err
		}
	}
	if c.RailLog != "" {
		if err := checkURL("payout.rail-log", c.RailLog); err != nil {
			return err
		}
	}
	for _, server := range c.LockServers {
		if strings.ContainsAny(server, " \t") {
			return fmt.Errorf("payout.lock-servers: must be addresses such as http://host:port, separated by commas")
		}
	}
	return endpoint.Check("payout.admin-addr", c.AdminAddr)
}

// checkURL does not quote what it refuses: it may hold a password.
func checkURL(key, text string) error {
	u, err := url.Parse(text)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" || strings.ContainsAny(text, "?#") {
		return fmt.Errorf("%s: must be a URL such as http://host:port", key)
	}
	return nil
}

func (c Config) checkTimes() error {
	if _, err := lock.RoundTTL("payout.session-ttl", c.SessionTTL); err != nil {
		return err
	}
	if err := between("payout.poll-interval", c.PollInterval, 10*time.Millisecond, time.Minute); err != nil {
		return err
	}
	return between("payout.stop-timeout", c.StopTimeout, time.Second, 10*time.Minute)
}

func between(key string, d, low, high time.Duration) error {
	if d < low || d > high {
		return fmt.Errorf("%s: must be %v to %v", key, low, high)
	}
	return nil
}

func (c Config) checkRest() error {
	if c.Concurrency < 1 || c.Concurrency > maxConcurrency {
		return fmt.Errorf("payout.concurrency: must be 1 to %d", maxConcurrency)
	}
	if c.Owner != "" {
		if _, err := lock.NewOwner(c.Owner); err != nil {
			return fmt.Errorf("payout.owner: %w", err)
		}
	}
	return c.Log.Check()
}
