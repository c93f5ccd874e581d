package postgres

import (
	"context"
	"errors"
	"maps"
	"net"
	"net/url"
	"strings"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgconn/ctxwatch"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/fencelock/fencelock/adapters/postgres/cancel"
	"github.com/fencelock/fencelock/core/lock"
)

const (
	// connectTimeout bounds the making of one connection where the URL does not say otherwise.
	connectTimeout = 5 * time.Second
	// cancelPatience is how long a call that was cancelled waits for the database to confirm that. After it the
	// connection is given up: the network swallows everything.
	cancelPatience = 500 * time.Millisecond
	// pingAfter is how long a connection may have been idle and is still used without a question whether it works: that is a
	// round trip, and without it the first call after a restart of the database has an unknown outcome.
	pingAfter = 5 * time.Second
	// minWorkers is the least size of the pool for everything but heartbeats: one connection may be waiting for a row.
	minWorkers = 2
	// beatConnections is the size of the pool for heartbeats.
	beatConnections = 2
	// minStatements is the least number of prepared statements that a connection keeps; there are fewer.
	minStatements = 128
	// applicationName is how the database lists the connections.
	applicationName = "fencelock"
)

// pools are the connections of a [Store].
type pools struct {
	// work is for everything but heartbeats, which must not queue behind it.
	work, beats *pgxpool.Pool
	// listening is how to open the connection that listens; nil where there is no direct way.
	listening *pgx.ConnConfig
	// pooler: the pools lead through a transaction pooler; times then come as text.
	pooler bool
	// unreplicated: the last check saw standbys and none of them synchronous.
	unreplicated atomic.Bool
	// refused: the newest connection was not fit for locks, and was given up.
	refused atomic.Bool
}

// openPools reads the URLs and opens the pools.
func openPools(ctx context.Context, access Access) (*pools, error) {
	p, err := openWork(ctx, access)
	if err != nil {
		return nil, err
	}
	if err := p.openBeats(ctx); err != nil {
		p.close()
		return nil, err
	}
	return p, nil
}

// openWork is openPools without the pool for heartbeats. No connection is made yet.
func openWork(ctx context.Context, access Access) (*pools, error) {
	p := &pools{pooler: access.Pooler}
	work, err := p.configure("postgres URL", access.URL, access.Pooler)
	if err != nil {
		return nil, err
	}
	switch {
	case access.ListenURL != "":
		direct, err := p.configure("postgres listen URL", access.ListenURL, false)
		if err != nil {
			return nil, err
		}
		p.listening = direct.ConnConfig
	case !access.Pooler:
		p.listening = work.ConnConfig.Copy()
	}
	work.MaxConns = max(work.MaxConns, minWorkers)
	outlast(work, access.Pooler)
	if p.work, err = pgxpool.NewWithConfig(ctx, work); err != nil {
		return nil, translate(err, reads)
	}
	return p, nil
}

// openBeats opens the pool for heartbeats. Its connections are made at once, and closing it waits for those that are being
// made: so not before it is known that the database answers.
func (p *pools) openBeats(ctx context.Context) (err error) {
	beats := p.work.Config()
	beats.MaxConns, beats.MinConns, beats.MinIdleConns = beatConnections, beatConnections, 0
	if p.beats, err = pgxpool.NewWithConfig(ctx, beats); err != nil {
		return translate(err, reads)
	}
	return nil
}

// close closes all connections of the pools; calls in flight must have ended.
func (p *pools) close() {
	p.work.Close()
	if p.beats != nil {
		p.beats.Close()
	}
}

// canListen reports whether there is a direct way to the database.
func (p *pools) canListen() bool { return p.listening != nil }

// listener opens a connection to listen on, which the caller closes.
func (p *pools) listener(ctx context.Context) (*pgx.Conn, error) {
	if p.listening == nil {
		return nil, errors.New("open connection to listen on: there is no direct way to the database")
	}
	conn, err := pgx.ConnectConfig(ctx, p.listening.Copy())
	if err != nil {
		return nil, translate(err, reads)
	}
	return conn, nil
}

// vet is asked of every new connection, also through a pooler, before it is used. A standby answers questions from what it has replayed
// so far, and of several hosts any may be one; a role or a database can be given settings that only
// new connections have.
func (p *pools) vet(ctx context.Context, conn *pgconn.PgConn) error {
	results, err := conn.Exec(ctx, "SELECT "+askSettings).ReadAll()
	if err != nil {
		return err //nolint:wrapcheck // The driver wraps it, and translate judges it.
	}
	err = readSettings(results[0].Rows[0]).judge()
	p.refused.Store(err != nil)
	return err
}

// vetAnew returns what is wrong with a new connection, where the newest one was refused: those from before may still be well.
func (p *pools) vetAnew(ctx context.Context) error {
	if !p.refused.Load() {
		return nil
	}
	conn, err := pgx.ConnectConfig(ctx, p.work.Config().ConnConfig)
	if err != nil {
		return translate(err, reads)
	}
	_ = conn.Close(ctx)
	return nil
}

// configure reads a URL and adds what a [Store] relies on.
func (p *pools) configure(name, text string, pooler bool) (*pgxpool.Config, error) {
	if text == "" {
		return nil, lock.Invalid(name, "is missing")
	}
	config, err := pgxpool.ParseConfig(text)
	if err != nil {
		return nil, unreadable(name, text, err)
	}
	conn := config.ConnConfig
	if conn.ConnectTimeout == 0 {
		conn.ConnectTimeout = connectTimeout
	}
	if conn.RuntimeParams["application_name"] == "" {
		conn.RuntimeParams["application_name"] = applicationName
	}
	conn.ValidateConnect = p.vet
	ends := conn.OnPgError
	conn.OnPgError = func(conn *pgconn.PgConn, err *pgconn.PgError) bool {
		return err.Code != stateReadOnly && ends(conn, err) // the next connection may meet the primary
	}
	if pooler {
		// A pooler refuses settings that it does not know, and the next statement may meet another connection, so
		// there is nothing to prepare either. What the settings are is checked at the start.
		conn.DefaultQueryExecMode = pgx.QueryExecModeExec
		conn.StatementCacheCapacity, conn.DescriptionCacheCapacity = 0, 0
	} else {
		// Another mode would read times as text, which the database's settings change.
		conn.DefaultQueryExecMode = pgx.QueryExecModeCacheStatement
		conn.StatementCacheCapacity = max(conn.StatementCacheCapacity, minStatements)
		maps.Copy(conn.RuntimeParams, map[string]string{
			"default_transaction_isolation": readCommitted,
			"client_encoding":               "UTF8",
			"client_min_messages":           "warning",             // see cancel.NoteUnconfirmed
			"search_path":                   "pg_catalog, pg_temp", // nobody else's functions
		})
	}
	return config, nil
}

// outlast makes the connections of a pool outlast the calls that use them: callers give up often, and connections are slow to
// make. Those that the network has swallowed are given up soon. Nothing asks a pooler to cancel: pgbouncer 1.18, which is still
// shipped, can crash under such requests, and takes all its connections along. What it is to be spared ends by the limits of
// the statements themselves.
func outlast(config *pgxpool.Config, pooler bool) {
	config.ConnConfig.OnNotice = cancel.NoteUnconfirmed
	config.ConnConfig.BuildContextWatcherHandler = func(conn *pgconn.PgConn) ctxwatch.Handler {
		if pooler {
			return cancel.Unasked(conn, cancelPatience)
		}
		return cancel.Confirmed(conn, cancelPatience)
	}
	config.PrepareConn = forgetUnconfirmed
	config.BeforeConnect = func(_ context.Context, config *pgx.ConnConfig) error {
		hurry(config, pooler)
		return nil
	}
	config.ShouldPing = func(_ context.Context, p pgxpool.ShouldPingParams) bool { return p.IdleDuration > pingAfter }
	if config.PingTimeout == 0 {
		config.PingTimeout = cancelPatience
	}
}

// unreadable says why a URL cannot be read without showing a password: where even the URL's parts are uncertain, anything in
// it could be one.
func unreadable(name, text string, err error) error {
	const hint = "cannot be read; it looks like postgres://user:password@host:5432/database?sslmode=verify-full"
	u, parseErr := url.Parse(text)
	if parseErr != nil || u.Host == "" {
		return lock.Invalid(name, hint)
	}
	reason := err.Error()
	if i := strings.LastIndex(reason, "`: "); i >= 0 {
		reason = reason[i+len("`: "):]
	}
	secrets := []string{u.Query().Get("password"), u.Query().Get("sslpassword")}
	if password, ok := u.User.Password(); ok {
		secrets = append(secrets, password)
	}
	for _, secret := range secrets {
		if secret != "" && strings.Contains(reason, secret) {
			return lock.Invalid(name, hint)
		}
	}
	return lock.Invalid(name, reason)
}

// errNoCancel stands in the way of a request to cancel, which the driver makes for each connection that it gives up.
var errNoCancel = errors.New("a pooler is not asked to cancel")

// hurry bounds the time that a connection which was given up still takes a place in its pool: the driver asks the database to
// cancel what went on there and then waits for its last words, for 15 seconds each. A pooler is not asked.
func hurry(config *pgx.ConnConfig, pooler bool) {
	var connected atomic.Bool
	config.AfterConnect = func(context.Context, *pgconn.PgConn) error {
		connected.Store(true)
		return nil
	}
	dial := config.DialFunc
	config.DialFunc = func(ctx context.Context, network, address string) (net.Conn, error) {
		if !connected.Load() {
			conn, err := dial(ctx, network, address)
			if err != nil {
				return nil, err
			}
			return hurried{conn}, nil
		}
		if pooler {
			return nil, errNoCancel
		}
		// This one is for a request to cancel.
		ctx, cancel := context.WithTimeout(ctx, cancelPatience)
		defer cancel()
		conn, err := dial(ctx, network, address)
		if err != nil {
			return nil, err
		}
		return conn, conn.SetDeadline(time.Now().Add(cancelPatience))
	}
}

// hurried is a network connection with near deadlines only. The driver sets one where a connection is to end.
type hurried struct{ net.Conn }

// SetDeadline sets the deadline, or an earlier one.
func (c hurried) SetDeadline(at time.Time) error {
	if soon := time.Now().Add(cancelPatience); at.After(soon) {
		at = soon
	}
	return c.Conn.SetDeadline(at) //nolint:wrapcheck // It stands in for the connection.
}

// forgetUnconfirmed begins anew with each use of a connection: not every write is followed by [confirm].
func forgetUnconfirmed(_ context.Context, conn *pgx.Conn) (usable bool, err error) {
	cancel.TakeUnconfirmed(conn.PgConn())
	return true, nil
}

// confirm is for after a write that has succeeded: it returns an ambiguous error where a failover could undo that.
func confirm(conn *pgx.Conn) error {
	if !cancel.TakeUnconfirmed(conn.PgConn()) {
		return nil
	}
	return lock.Contention("no synchronous standby has confirmed the write", true, nil)
}
