package config

import (
	"fmt"
	"io"
	"net/url"
	"strconv"
	"strings"

	"github.com/spf13/pflag"
)

// Print writes c in a form that can be read back as a file, with passwords replaced.
func (c Config) Print(w io.Writer) error {
	var failed error
	bound(&c).VisitAll(func(f *pflag.Flag) {
		value := f.Value.String()
		switch f.Name {
		case "etcd.endpoints":
			value = strings.Join(c.ShownEndpoints(), ",")
		case "postgres.url", "postgres.listen-url":
			value = shownURL(value)
		}
		if _, err := fmt.Fprintf(w, "%s: %s\n", f.Name, quoted(f, value)); err != nil {
			failed = fmt.Errorf("print configuration: %w", err)
		}
	})
	return failed
}

// bound are the keys over the values of c.
func bound(c *Config) *pflag.FlagSet {
	values := *c
	fs := keys(c)
	*c = values // declaring the keys has set their defaults
	return fs
}

func quoted(f *pflag.Flag, value string) string {
	if f.Value.Type() == "string" || f.Value.Type() == "stringSlice" {
		return strconv.Quote(value)
	}
	return value
}

// ShownEndpoints are EtcdEndpoints with passwords replaced.
func (c Config) ShownEndpoints() []string {
	shown := make([]string, len(c.EtcdEndpoints))
	for i, endpoint := range c.EtcdEndpoints {
		shown[i] = endpoint
		if u, err := url.Parse(endpoint); err == nil && u.User != nil {
			shown[i] = u.Redacted()
		}
	}
	return shown
}
