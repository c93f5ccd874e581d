package embedded

import (
	"context"
	"log/slog"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
)

// zapTo returns a zap logger that passes what is at least of the level on to logger.
func zapTo(logger *slog.Logger, level zap.AtomicLevel) *zap.Logger {
	return zap.New(&core{AtomicLevel: level, logger: logger})
}

// core is a zapcore.Core over slog.
type core struct {
	zap.AtomicLevel
	logger *slog.Logger
}

// With implements zapcore.Core.
func (c *core) With(fields []zapcore.Field) zapcore.Core {
	return &core{AtomicLevel: c.AtomicLevel, logger: slog.New(c.logger.Handler().WithAttrs(attributes(fields)))}
}

// Check implements zapcore.Core.
func (c *core) Check(entry zapcore.Entry, checked *zapcore.CheckedEntry) *zapcore.CheckedEntry {
	if c.Enabled(entry.Level) {
		return checked.AddCore(entry, c)
	}
	return checked
}

// Write implements zapcore.Core.
func (c *core) Write(entry zapcore.Entry, fields []zapcore.Field) error {
	level := slog.LevelWarn
	if entry.Level >= zapcore.ErrorLevel {
		level = slog.LevelError
	}
	c.logger.LogAttrs(context.Background(), level, "etcd: "+entry.Message, attributes(fields)...)
	return nil
}

// Sync implements zapcore.Core.
func (c *core) Sync() error { return nil }

// attributes leaves out requests and responses, which hold what callers have sent.
func attributes(fields []zapcore.Field) []slog.Attr {
	encoder := zapcore.NewMapObjectEncoder()
	for _, f := range fields {
		if f.Key != "request" && f.Key != "response" {
			f.AddTo(encoder)
		}
	}
	attrs := make([]slog.Attr, 0, len(encoder.Fields))
	for name, value := range encoder.Fields {
		attrs = append(attrs, slog.Any(name, value))
	}
	return attrs
}
