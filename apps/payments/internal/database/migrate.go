package database

import (
	"context"
	"errors"
	"fmt"
	"io/fs"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/pressly/goose/v3"
)

// Migrate brings a schema to the newest version of the migrations in files. Any number of processes may begin it at once: one
// after the other does it, and those that come later find nothing to do. A schema that is newer than files is left as it is. A database
// that can lose what it has committed is refused.
func (d *Database) Migrate(ctx context.Context, schema string, files fs.FS) error {
	if err := d.checkDurable(ctx); err != nil {
		return err
	}
	turn, err := d.pool.Begin(ctx)
	if err != nil {
		return translate(err, false)
	}
	// The lock is this transaction's: it ends with it, also if this process dies. Nothing is to be committed.
	defer func() { _ = turn.Rollback(context.WithoutCancel(ctx)) }()
	if _, err := turn.Exec(ctx, "SELECT pg_advisory_xact_lock(hashtextextended($1, 0))", "fencelock migrations of "+schema); err != nil {
		return translate(err, false)
	}
	if err := d.createSchema(ctx, schema); err != nil {
		return fmt.Errorf("create schema %s: %w", schema, translate(err, false))
	}
	if err := d.apply(ctx, schema, files); err != nil {
		return fmt.Errorf("migrate schema %s: %w", schema, err)
	}
	return nil
}

// checkDurable refuses a database that does not keep what it has committed, whatever happens to its machine: an intent that is
// forgotten is money that is sent again.
func (d *Database) checkDurable(ctx context.Context) error {
	for _, setting := range []string{"fsync", "full_page_writes", "synchronous_commit"} {
		var value string
		if err := d.pool.QueryRow(ctx, "SELECT current_setting($1)", setting).Scan(&value); err != nil {
			return translate(err, false)
		}
		if value == "off" {
			return fmt.Errorf("check the database: %s is off: a crash can undo what was committed", setting)
		}
	}
	return nil
}

// createSchema asks first: to make a schema takes a right on the database, even where there is one already.
func (d *Database) createSchema(ctx context.Context, schema string) error {
	var exists bool
	if err := d.pool.QueryRow(ctx, "SELECT to_regnamespace($1) IS NOT NULL", schema).Scan(&exists); err != nil || exists {
		return err //nolint:wrapcheck // Migrate says what was tried
	}
	_, err := d.pool.Exec(ctx, "CREATE SCHEMA "+pgx.Identifier{schema}.Sanitize())
	return err //nolint:wrapcheck // as above
}

func (d *Database) apply(ctx context.Context, schema string, files fs.FS) (err error) {
	db := stdlib.OpenDBFromPool(d.pool)
	defer func() { err = errors.Join(err, db.Close()) }()
	provider, err := goose.NewProvider(goose.DialectPostgres, db, files,
		goose.WithTableName(schema+".goose_db_version"), goose.WithDisableGlobalRegistry(true))
	if err != nil {
		return fmt.Errorf("read migrations: %w", err)
	}
	if _, err := provider.Up(ctx); err != nil {
		return fmt.Errorf("apply migrations: %w", err)
	}
	return nil
}
