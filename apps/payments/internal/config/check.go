package config

import (
	"fmt"
	"time"

	"github.com/spf13/pflag"

	"github.com/fencelock/fencelock/apps/program/database"
	"github.com/fencelock/fencelock/apps/program/endpoint"
	"github.com/fencelock/fencelock/apps/program/settings"
)

// Keys and lines of help that programs have in common.
const (
	adminUsage = "address of metrics and probes"
	//nolint:gosec // an example
	urlUsage     = "such as postgres://role:password@host:5432/database; better given by the variable or the file than as a flag"
	keyFile      = "fence.public-key-file"
	keyFileUsage = "file with the public keys of which one must have signed each token; none: every caller is believed"
)

func flags(program string) *pflag.FlagSet {
	fs := pflag.NewFlagSet(program, pflag.ContinueOnError)
	fs.SortFlags = false
	return fs
}

// load reads a configuration.
func load[C any](keys func(*C) *pflag.FlagSet, check func(C) error, args, env []string) (C, error) {
	var c C
	err := settings.Load(keys(&c), args, env, func() error { return check(c) })
	return c, err
}

// shown is what may be seen of a value.
func shown(key, value string) string {
	switch key {
	case "payment.url", "rail.proxy.url":
		return database.Shown(value)
	case "rail.proxy.rail":
		return settings.ShownURLs(value)
	}
	return value
}

// door is an address and its key.
type door struct{ key, addr string }

func checkDoors(doors ...door) error {
	for _, d := range doors {
		if err := endpoint.Check(d.key, d.addr); err != nil {
			return err
		}
	}
	return nil
}

// open lists the keys of the doors that other machines can reach.
func open(doors ...door) []string {
	var keys []string
	for _, d := range doors {
		if endpoint.IsOpen(d.addr) {
			keys = append(keys, d.key)
		}
	}
	return keys
}

func checkDatabase(key, url string) error {
	if url == "" {
		return fmt.Errorf("%s: must be set, best by the variable %s", key, settings.Variable(key))
	}
	return database.Check(key, url)
}

func between(key string, d, low, high time.Duration) error {
	if d < low || d > high {
		return fmt.Errorf("%s: must be %v to %v", key, low, high)
	}
	return nil
}

// share refuses what is no share of a whole.
func share(key string, s float64) error {
	if !(s >= 0 && s <= 1) { // also refuses NaN
		return fmt.Errorf("%s: must be 0 to 1", key)
	}
	return nil
}

// first returns the first error.
func first(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}
