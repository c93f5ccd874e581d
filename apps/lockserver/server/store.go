package server

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"time"

	"go.uber.org/fx"

	"github.com/fencelock/fencelock/apps/lockserver/config"
	"github.com/fencelock/fencelock/apps/lockserver/telemetry"
	"github.com/fencelock/fencelock/core/port"
)

// openTimeout bounds the opening of a store.
const openTimeout = 30 * time.Second

// opening is what it takes to open a store.
type opening struct {
	fx.In

	Lifecycle fx.Lifecycle
	Stop      fx.Shutdowner
	Config    config.Config
	Metrics   *telemetry.Metrics
	Logger    *slog.Logger
}

// store is what the adapters have in common.
type store interface {
	Backend() port.Backend
	Close() error
}

// openStore opens the configured store; the graph closes it after all that uses it.
func openStore(ctx context.Context, o opening) (port.Backend, error) {
	ctx, cancel := context.WithTimeout(ctx, openTimeout)
	defer cancel()
	open := o.openEtcd
	if o.Config.Backend == config.Postgres {
		open = o.openPostgres
	}
	opened, err := open(ctx)
	if err != nil {
		return port.Backend{}, err
	}
	o.Lifecycle.Append(fx.StopHook(opened.Close))
	return opened.Backend(), nil
}

// notes is the file of this server's note of the highest token seen, in a directory that is made if need be. Servers of one
// external store may share a directory, so the note carries the server's address.
func (o opening) notes(dir string) (string, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", fmt.Errorf("create data directory: %w", err)
	}
	if o.Config.Embedded() {
		return filepath.Join(dir, "watermark"), nil
	}
	return filepath.Join(dir, "watermark-"+strings.NewReplacer(":", "_", "/", "_").Replace(o.Config.ServerAddr)), nil
}

// unsafe is the kind of the one incident, the same for all adapters, that stops grants.
const unsafe = "store_unsafe"

// report counts and logs what the store's adapter noticed.
func (o opening) report(kind string, err error) {
	o.Metrics.CountIncident(kind)
	level := slog.LevelWarn
	if kind == unsafe {
		level = slog.LevelError
	}
	logger := o.Logger
	logger.LogAttrs(context.Background(), level, "store_"+strings.TrimPrefix(kind, "store_"), slog.Any("error", err))
}
