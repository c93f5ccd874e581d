package server

import (
	"context"
	"errors"
	"fmt"

	"github.com/fencelock/fencelock/adapters/postgres"
	"github.com/fencelock/fencelock/apps/lockserver/config"
	"github.com/fencelock/fencelock/core/clock"
)

// errPolls explains the one incident that a configuration alone can cause.
var errPolls = errors.New("waiters poll: postgres.pooler is set, and postgres.listen-url is not")

// openPostgres connects to a database, and migrates it if need be.
func (o opening) openPostgres(ctx context.Context) (store, error) {
	notes, err := o.notes(o.Config.PostgresStateDir)
	if err != nil {
		return nil, err
	}
	opened, err := postgres.Dial(ctx, database(o.Config), postgres.Config{
		Clock:         clock.Boot{},
		WatermarkFile: notes,
		Report: func(i postgres.Incident) {
			if i.Kind == postgres.NotListening && i.Err == nil {
				i.Err = errPolls
			}
			o.report(string(i.Kind), i.Err)
		},
	})
	if err != nil {
		return nil, fmt.Errorf("open PostgreSQL at %s: %w", o.Config.Database(), err)
	}
	return opened, nil
}

// Migrate brings the database of a configuration with the backend postgres to the newest schema, which a server does by
// itself where its role may.
func Migrate(ctx context.Context, cfg config.Config) error {
	if err := postgres.Migrate(ctx, database(cfg)); err != nil {
		return fmt.Errorf("migrate PostgreSQL at %s: %w", cfg.Database(), err)
	}
	return nil
}

func database(cfg config.Config) postgres.Access {
	return postgres.Access{URL: cfg.PostgresURL, ListenURL: cfg.PostgresListenURL, Pooler: cfg.PostgresPooler}
}
