package logging

import (
	"fmt"
	"io"
	"log/slog"

	"github.com/spf13/pflag"

	"github.com/fencelock/fencelock/apps/program/settings"
)

// Config is what can be set about a log.
type Config struct {
	// Level is the least severe that is logged: debug, info, warn or error.
	Level string
	// Format is json or text.
	Format string
}

// Declare adds the keys log.level and log.format to fs, bound to c.
func (c *Config) Declare(fs *pflag.FlagSet) {
	fs.StringVar(&c.Level, "log.level", "info", "least severe level that is logged: debug, info, warn, error")
	fs.StringVar(&c.Format, "log.format", "json", "form of log lines: json, text")
}

// Check names the key whose value cannot be.
func (c *Config) Check() error {
	if _, err := c.level(); err != nil {
		return err
	}
	if c.Format != "json" && c.Format != "text" {
		return fmt.Errorf("log.format: %q is none of json, text", c.Format)
	}
	return nil
}

func (c *Config) level() (slog.Level, error) {
	var level slog.Level
	if err := level.UnmarshalText([]byte(c.Level)); err != nil {
		return level, fmt.Errorf("log.level: %q is none of debug, info, warn, error", c.Level)
	}
	return level, nil
}

// Logger logs to w. Errors of drivers may have several lines, and quote what they were given: an error in a log is one line,
// without passwords. What [Config.Check] refuses means the default.
func (c *Config) Logger(w io.Writer) *slog.Logger {
	level, _ := c.level()
	options := &slog.HandlerOptions{Level: level, ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
		if err, ok := a.Value.Any().(error); ok {
			return slog.String(a.Key, settings.Line(err))
		}
		return a
	}}
	if c.Format == "text" {
		return slog.New(slog.NewTextHandler(w, options))
	}
	return slog.New(slog.NewJSONHandler(w, options))
}
