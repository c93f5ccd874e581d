package embedded

import (
	"log/slog"

	"go.uber.org/zap"
)

// ZapTo is the logger that etcd gets.
func ZapTo(logger *slog.Logger) *zap.Logger {
	return zapTo(logger, zap.NewAtomicLevelAt(zap.WarnLevel))
}
