package settings

import (
	"fmt"
	"io"
	"strconv"

	"github.com/spf13/pflag"
)

// Bound declares keys over the values of c, which stay as they are: declaring sets defaults.
func Bound[C any](c *C, keys func(*C) *pflag.FlagSet) *pflag.FlagSet {
	values := *c
	fs := keys(c)
	*c = values
	return fs
}

// Print writes the keys of fs in a form that can be read back as a file. show returns what may be seen of a value,
// that is without secrets; nil shows all.
func Print(w io.Writer, fs *pflag.FlagSet, show func(key, value string) string) error {
	var failed error
	fs.VisitAll(func(f *pflag.Flag) {
		value := text(f)
		if show != nil {
			value = show(f.Name, value)
		}
		if f.Value.Type() == "string" || f.Value.Type() == "stringSlice" {
			value = strconv.Quote(value)
		}
		if _, err := fmt.Fprintf(w, "%s: %s\n", f.Name, value); err != nil {
			failed = fmt.Errorf("print configuration: %w", err)
		}
	})
	return failed
}
