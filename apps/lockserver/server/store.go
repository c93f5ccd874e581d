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

	"github.com/fencelock/fencelock/adapters/etcd"
	"github.com/fencelock/fencelock/apps/lockserver/config"
	"github.com/fencelock/fencelock/apps/lockserver/embedded"
	"github.com/fencelock/fencelock/core/clock"
	"github.com/fencelock/fencelock/core/port"
)

// openTimeout bounds the opening of a store.
const openTimeout = 30 * time.Second

// openStore opens the configured store; the graph closes it after all that uses it.
func openStore(ctx context.Context, lc fx.Lifecycle, stop fx.Shutdowner, cfg config.Config, logger *slog.Logger) (port.Backend, error) {
	ctx, cancel := context.WithTimeout(ctx, openTimeout)
	defer cancel()
	if err := os.MkdirAll(cfg.EtcdDataDir, 0o700); err != nil {
		return port.Backend{}, fmt.Errorf("create data directory: %w", err)
	}
	settings := etcd.Config{
		Prefix:              cfg.EtcdPrefix,
		Clock:               clock.Boot{},
		WatermarkFile:       watermarkFile(cfg),
		AllowUnsafeVersions: cfg.EtcdUnsafeVersions,
		Report:              func(i etcd.Incident) { report(logger, i) },
	}
	var store *etcd.Store
	var err error
	if cfg.Embedded() {
		store, err = embed(ctx, lc, stop, cfg.EtcdDataDir, settings, logger)
	} else {
		store, err = etcd.Dial(ctx, etcd.Access{Endpoints: cfg.EtcdEndpoints}, settings)
	}
	if err != nil {
		return port.Backend{}, err
	}
	lc.Append(fx.StopHook(store.Close))
	return store.Backend(), nil
}

// embed starts an etcd of our own; the graph stops it after the store.
func embed(
	ctx context.Context, lc fx.Lifecycle, stop fx.Shutdowner, dir string, settings etcd.Config, logger *slog.Logger,
) (*etcd.Store, error) {
	server, err := embedded.Start(ctx, dir, logger)
	if err != nil {
		return nil, err
	}
	store, err := etcd.New(ctx, etcd.Clients{
		KV:          server.Client(),
		Watcher:     server.Client(),
		Lease:       server.Lease(),
		Maintenance: server.Client(),
		Endpoints:   []string{embedded.Name},
	}, settings)
	if err != nil {
		server.Close()
		return nil, err
	}
	stopped := make(chan struct{})
	go func() {
		select {
		case err := <-server.Failed():
			logger.Error("store_failed", slog.Any("error", err))
			_ = stop.Shutdown(fx.ExitCode(1))
		case <-stopped:
		}
	}()
	lc.Append(fx.StopHook(func() {
		close(stopped)
		server.Close()
	}))
	return store, nil
}

// watermarkFile is this server's note of the highest token seen. Servers of one external store may share a directory,
// so the note carries the server's address.
func watermarkFile(cfg config.Config) string {
	if cfg.Embedded() {
		return filepath.Join(cfg.EtcdDataDir, "watermark")
	}
	return filepath.Join(cfg.EtcdDataDir, "watermark-"+strings.NewReplacer(":", "_", "/", "_").Replace(cfg.ServerAddr))
}

// report logs what the store's adapter noticed.
func report(logger *slog.Logger, incident etcd.Incident) {
	level := slog.LevelWarn
	if incident.Kind == etcd.StoreUnsafe {
		level = slog.LevelError
	}
	logger.LogAttrs(context.Background(), level, "store_"+string(incident.Kind), slog.Any("error", incident.Err))
}
