package server

import (
	"context"
	"log/slog"

	"go.uber.org/fx"

	"github.com/fencelock/fencelock/adapters/etcd"
	"github.com/fencelock/fencelock/apps/lockserver/embedded"
	"github.com/fencelock/fencelock/core/clock"
)

// openEtcd connects to an etcd, or starts one.
func (o opening) openEtcd(ctx context.Context) (store, error) {
	notes, err := o.notes(o.Config.EtcdDataDir)
	if err != nil {
		return nil, err
	}
	settings := etcd.Config{
		Prefix:              o.Config.EtcdPrefix,
		Clock:               clock.Boot{},
		WatermarkFile:       notes,
		AllowUnsafeVersions: o.Config.EtcdUnsafeVersions,
		Report:              func(i etcd.Incident) { o.report(string(i.Kind), i.Err) },
	}
	if o.Config.Embedded() {
		return o.embed(ctx, settings)
	}
	return etcd.Dial(ctx, etcd.Access{Endpoints: o.Config.EtcdEndpoints}, settings)
}

// embed starts an etcd of our own; the graph stops it after the store.
func (o opening) embed(ctx context.Context, settings etcd.Config) (store, error) {
	logger := o.Logger
	server, err := embedded.Start(ctx, o.Config.EtcdDataDir, logger)
	if err != nil {
		return nil, err
	}
	opened, err := etcd.New(ctx, etcd.Clients{
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
			_ = o.Stop.Shutdown(fx.ExitCode(1))
		case <-stopped:
		}
	}()
	o.Lifecycle.Append(fx.StopHook(func() {
		close(stopped)
		server.Close()
	}))
	return opened, nil
}
