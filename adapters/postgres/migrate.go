package postgres

import (
	"context"
	"database/sql"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"slices"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/pressly/goose/v3"
	gooselock "github.com/pressly/goose/v3/lock"

	"github.com/fencelock/fencelock/core/lock"
)

//go:embed migrations/*.sql
var migrations embed.FS

const (
	// versionTable and migrationLock are goose's own tables.
	versionTable  = "fencelock.goose_db_version"
	migrationLock = "fencelock.goose_lock"

	// A server that dies while it migrates leaves its lock behind for that long.
	migrationLease = 5 * time.Second
	migrationBeat  = time.Second
	migrationPoll  = 200 * time.Millisecond
	// unlockTries is how often the end of a migration tries to give the lock back; it runs out soon enough by itself.
	unlockTries = 5
)

// Migrate brings the schema of a database to the newest version. It is what [Dial] does first, for operators who let
// another role do it: a server whose database is up to date creates nothing. A schema that is newer than this
// program is left as it is. Errors are those of [Dial].
func Migrate(ctx context.Context, access Access) error {
	p, err := openWork(ctx, access)
	if err != nil {
		return err
	}
	defer p.close()
	return migrate(ctx, p)
}

// migrate asks for the version first: most servers start with nothing to do, and then need no right to do it.
func migrate(ctx context.Context, p *pools) error {
	files, err := fs.Sub(migrations, "migrations")
	if err != nil {
		return fmt.Errorf("read migrations: %w", err)
	}
	return migrateFrom(ctx, p, files)
}

// migrateFrom migrates with the files given.
func migrateFrom(ctx context.Context, p *pools, files fs.FS) error {
	current, err := schemaVersion(ctx, p)
	if err != nil {
		return err
	}
	newest, err := newestMigration(files)
	if err != nil || current >= newest {
		return err
	}
	err = createSchema(ctx, p)
	if err == nil {
		err = applyMigrations(ctx, p, files)
	}
	if isState(err, statePrivilege) {
		return mayNotMigrate(err, current, newest)
	}
	if err != nil {
		return fmt.Errorf("migrate the database: %w", translate(err, reads))
	}
	return nil
}

// mayNotMigrate says what to do where the role has not the right, and of the cause only what the database said: how
// migrations are locked is of no use then.
func mayNotMigrate(err error, current, newest int64) error {
	answer, _ := errors.AsType[*pgconn.PgError](err)
	at := fmt.Sprintf("the schema is at version %d", current)
	if current == 0 {
		at = "there is no schema yet"
	}
	const advice = "%s, this server needs version %d, and its role may not migrate: run lockserver migrate as a role that may"
	return lock.Contention(fmt.Sprintf(advice, at, newest), false, answer)
}

// schemaVersion is the version of the schema; 0 if there is none.
func schemaVersion(ctx context.Context, p *pools) (int64, error) {
	var version int64
	err := p.work.QueryRow(ctx, "SELECT coalesce(max(version_id), 0) FROM "+versionTable).Scan(&version)
	if isState(err, stateUndefinedTable, stateUndefinedSchema) {
		return 0, nil
	}
	if err != nil {
		return 0, fmt.Errorf("read the version of the schema: %w", p.explain(ctx, p.work, err))
	}
	return version, nil
}

func newestMigration(files fs.FS) (int64, error) {
	names, err := fs.Glob(files, "*.sql")
	if err != nil || len(names) == 0 {
		return 0, fmt.Errorf("find migrations: %w", errors.Join(err, fs.ErrNotExist))
	}
	version, err := goose.NumericComponent(slices.Max(names))
	if err != nil {
		return 0, fmt.Errorf("read name of migration: %w", err)
	}
	return version, nil
}

// createSchema makes the schema that all our tables, and goose's, are in. To make one takes a right on the database, even where
// there is one already; so that is asked first.
func createSchema(ctx context.Context, p *pools) error {
	var exists bool
	err := p.work.QueryRow(ctx, "SELECT to_regnamespace('fencelock') IS NOT NULL").Scan(&exists)
	if err == nil && !exists {
		_, err = p.work.Exec(ctx, "CREATE SCHEMA fencelock")
	}
	if err != nil && !isState(err, stateDuplicateSchema, stateUniqueViolation) {
		return fmt.Errorf("create the schema: %w", err)
	}
	return nil
}

// applyMigrations lets goose do what is still to be done, one server at a time. The lock is a row of a table, which a
// transaction pooler cannot lose. It runs out where its server is gone, or was stopped for long; a migration that is
// applied twice at once fails as a whole the second time.
func applyMigrations(ctx context.Context, p *pools, files fs.FS) (err error) {
	locker, err := gooselock.NewPostgresTableLocker(
		gooselock.WithTableName(migrationLock),
		gooselock.WithTableLeaseDuration(migrationLease),
		gooselock.WithTableHeartbeatInterval(migrationBeat),
		gooselock.WithTableLockTimeout(migrationPoll, 1<<62), // the context bounds it
		gooselock.WithTableUnlockTimeout(migrationPoll, unlockTries),
		gooselock.WithTableLogger(slog.New(slog.DiscardHandler)),
		gooselock.WithTableRetryPolicy(worthWaiting),
	)
	if err != nil {
		return fmt.Errorf("configure lock: %w", err)
	}
	db := stdlib.OpenDBFromPool(p.work)
	defer func() { err = errors.Join(err, db.Close()) }()
	provider, err := goose.NewProvider(goose.DialectPostgres, db, files,
		goose.WithTableName(versionTable), goose.WithDisableGlobalRegistry(true))
	if err != nil {
		return fmt.Errorf("read migrations: %w", err)
	}
	if err := locker.Lock(ctx, db); err != nil {
		return fmt.Errorf("wait for the turn: %w", err)
	}
	// That the lock cannot be given back is nobody's loss: it runs out.
	defer func() { _ = locker.Unlock(ctx, db) }()
	if _, err := provider.Up(ctx); err != nil {
		return fmt.Errorf("apply migrations: %w", err)
	}
	return nil
}

// worthWaiting reports whether the lock on migrations may be had later: it is held, or the database could not answer.
func worthWaiting(err error) bool {
	return !isState(err, statePrivilege, stateReadOnly) && !errors.Is(err, sql.ErrConnDone) && !timedOut(err)
}
