package database

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgconn/ctxwatch"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/fencelock/fencelock/adapters/postgres/cancel"
	"github.com/fencelock/fencelock/core/lock"
)

const (
	// minConnections is the least size of a pool.
	minConnections = 16
	// connectTimeout bounds the making of one connection where the URL does not say otherwise.
	connectTimeout = 5 * time.Second
	// callLimit bounds one transaction, also where its caller would wait longer.
	callLimit = 10 * time.Second
	// patience is how long the database may take to confirm that it gave up what was cancelled.
	patience = 500 * time.Millisecond
)

// Database is a pool of connections to one PostgreSQL database.
type Database struct{ pool *pgxpool.Pool }

// Open reads a URL and makes a pool, in which name stands for the program in the database's own lists. No connection is made yet.
func Open(ctx context.Context, url, name string) (*Database, error) {
	config, err := pgxpool.ParseConfig(url)
	if err != nil {
		return nil, fmt.Errorf("read URL of PostgreSQL: %w", err)
	}
	conn := config.ConnConfig
	if conn.ConnectTimeout == 0 {
		conn.ConnectTimeout = connectTimeout
	}
	if conn.RuntimeParams["application_name"] == "" {
		conn.RuntimeParams["application_name"] = name
	}
	// A call that is given up, such as one that waits for a row, is cancelled in the database too, and its connection lives on.
	conn.BuildContextWatcherHandler = func(c *pgconn.PgConn) ctxwatch.Handler {
		return cancel.Confirmed(c, patience)
	}
	conn.OnNotice = cancel.NoteUnconfirmed
	config.MaxConns = max(config.MaxConns, minConnections)
	pool, err := pgxpool.NewWithConfig(ctx, config)
	if err != nil {
		return nil, fmt.Errorf("open pool: %w", err)
	}
	return &Database{pool: pool}, nil
}

// Close closes all connections; calls in flight must have ended.
func (d *Database) Close() { d.pool.Close() }

// Ping asks whether the database answers.
func (d *Database) Ping(ctx context.Context) error { return translate(d.pool.Ping(ctx), false) }

// Within runs do in a transaction that reads what is committed before each statement, and commits it if do returns nil. An
// error of do that is of the closed set, or a refusal, is returned as it is; what the driver says becomes [lock.ErrContention]
// where the database could not be asked, and then says whether the transaction may have been committed; that is also said where a
// synchronous standby is set, and none has confirmed the commit. The transaction is bounded by ten seconds.
func (d *Database) Within(ctx context.Context, do func(context.Context, pgx.Tx) error) error {
	return d.run(ctx, pgx.TxOptions{BeginQuery: beginWriting, AccessMode: pgx.ReadWrite}, do)
}

// Picture is [Database.Within] for reading only: all statements of do see the same moment.
func (d *Database) Picture(ctx context.Context, do func(context.Context, pgx.Tx) error) error {
	return d.run(ctx, pgx.TxOptions{IsoLevel: pgx.RepeatableRead, AccessMode: pgx.ReadOnly}, do)
}

func (d *Database) run(ctx context.Context, options pgx.TxOptions, do func(context.Context, pgx.Tx) error) error {
	call, done := context.WithTimeout(ctx, callLimit)
	defer done()
	conn, err := d.pool.Acquire(call)
	if err != nil {
		return translate(err, false)
	}
	defer conn.Release()
	tx, err := conn.BeginTx(call, options)
	if err != nil {
		return translate(err, false)
	}
	cancel.TakeUnconfirmed(conn.Conn().PgConn()) // of an earlier transaction
	if err := do(call, tx); err != nil {
		end, done := context.WithTimeout(context.WithoutCancel(ctx), patience)
		defer done()
		_ = tx.Rollback(end) // nothing was committed, and a connection that cannot say so is given up
		return translate(err, false)
	}
	if err := tx.Commit(call); err != nil {
		return translate(err, options.AccessMode == pgx.ReadWrite)
	}
	if cancel.TakeUnconfirmed(conn.Conn().PgConn()) {
		return lock.Contention("no synchronous standby has confirmed the transaction", true, nil)
	}
	return nil
}

// beginWriting begins a transaction that writes, and lets the database say what [cancel.NoteUnconfirmed] is to hear.
const beginWriting = "BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE; SET LOCAL client_min_messages = warning"
