package config

import (
	"fmt"
	"io"
	"net/url"
	"strconv"
	"strings"

	"github.com/spf13/pflag"
)

// Print writes c in a form that can be read back as a file, with passwords in addresses replaced.
func (c Config) Print(w io.Writer) error {
	shown := c
	fs := keys(&shown)
	// Declaring the keys has set their defaults; bring back the values.
	shown = c
	var failed error
	fs.VisitAll(func(f *pflag.Flag) {
		value := f.Value.String()
		if f.Name == "etcd.endpoints" {
			value = strings.Join(c.ShownEndpoints(), ",")
		}
		if _, err := fmt.Fprintf(w, "%s: %s\n", f.Name, quoted(f, value)); err != nil {
			failed = fmt.Errorf("print configuration: %w", err)
		}
	})
	return failed
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
