// Command lockserver serves fenced locks.
//
//	lockserver [--config FILE] [--KEY=VALUE ...]    serve until SIGTERM or SIGINT
//	lockserver config [...]                         print the configuration that would be used
//	lockserver migrate [...]                        bring the database of the backend postgres to the newest schema
//	lockserver version                              print the version
//
// The first SIGTERM or SIGINT drains the server; a second one ends it at once. Exit codes: 0 after a
// drain, 1 when serving or migrating failed, 2 for a configuration that cannot be.
package main

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"go.uber.org/fx"

	"github.com/fencelock/fencelock/apps/lockserver/config"
	"github.com/fencelock/fencelock/apps/lockserver/server"
	"github.com/fencelock/fencelock/apps/program"
)

func main() { lockserver().Main() }

func lockserver() program.Program[config.Config] {
	return program.Program[config.Config]{
		Name:     "lockserver",
		Load:     config.Load,
		Usage:    config.Usage,
		Graph:    graph,
		Commands: []program.Command[config.Config]{{Name: "migrate", Check: checkMigrate, Run: migrate}},
	}
}

// graph is a server, and what it says of itself at the start.
func graph(ctx context.Context, cfg config.Config, logger *slog.Logger) fx.Option {
	for _, key := range cfg.OpenToNetwork() {
		logger.Warn("open_to_network", slog.String("key", key),
			slog.String("danger", "anybody who can reach this address can take, release and revoke every lock"))
	}
	for _, key := range cfg.Unused() {
		logger.Warn("unused_key", slog.String("key", key))
	}
	return fx.Options(
		server.Options(ctx, cfg, logger, server.Build{Version: program.Version(), StartedAt: time.Now()}),
		fx.Provide(func(doors *server.Doors) program.Ready {
			return func() string {
				return fmt.Sprintf("rpc http://%s, admin http://%s, %s", doors.Public(), doors.Admin(), cfg.Store())
			}
		}),
	)
}

func checkMigrate(cfg config.Config) error {
	if cfg.Backend != config.Postgres {
		return fmt.Errorf("lock.backend is %s, where there is nothing to migrate", cfg.Backend)
	}
	return nil
}

// migrate brings the database to the newest schema.
func migrate(ctx context.Context, cfg config.Config) (string, error) {
	if err := server.Migrate(ctx, cfg); err != nil {
		return "", err
	}
	return fmt.Sprintf("the schema in %s is up to date", cfg.Store()), nil
}
