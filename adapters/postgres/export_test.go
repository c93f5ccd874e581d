package postgres

import (
	"context"
	"io/fs"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/fencelock/fencelock/core/port"
)

// ErrRowLocked is the cause where a statement gave up waiting for a row.
var ErrRowLocked = errRowLocked

// Translate is the one translation of what the driver says; wrote says that the call could change something.
func Translate(err error, wrote bool) error { return translate(err, access(wrote)) }

// Confirm is what a write that succeeded has to pass.
func Confirm(conn *pgx.Conn) error { return confirm(conn) }

// Pools are the connections of a Store alone.
type Pools struct{ *pools }

// OpenPools opens them.
func OpenPools(ctx context.Context, access Access) (Pools, error) {
	p, err := openPools(ctx, access)
	return Pools{p}, err
}

// Work is the pool for everything but heartbeats.
func (p Pools) Work() *pgxpool.Pool { return p.work }

// Beats is the pool for heartbeats.
func (p Pools) Beats() *pgxpool.Pool { return p.beats }

// CanListen reports whether there is a direct way to the database.
func (p Pools) CanListen() bool { return p.canListen() }

// Listener opens a connection to listen on.
func (p Pools) Listener(ctx context.Context) (*pgx.Conn, error) { return p.listener(ctx) }

// Close closes them.
func (p Pools) Close() { p.close() }

// PoolsOf are the connections of a Store.
func PoolsOf(s *Store) Pools { return Pools{s.pools} }

// Warm opens all connections of a Store and prepares there what grants, so that nothing but the call itself is on the way then.
func Warm(ctx context.Context, s *Store) error {
	var conns []*pgxpool.Conn
	defer func() {
		for _, conn := range conns {
			conn.Release()
		}
	}()
	for range s.pools.work.Config().MaxConns {
		conn, err := s.pools.work.Acquire(ctx)
		if err != nil {
			return err
		}
		conns = append(conns, conn)
		if _, err := conn.Conn().Prepare(ctx, tryInsert, tryInsert); err != nil {
			return err
		}
	}
	return nil
}

// Migrations are the files of the schema.
func Migrations() fs.FS {
	files, err := fs.Sub(migrations, "migrations")
	if err != nil {
		panic(err) // embedded
	}
	return files
}

// MigrateFrom migrates with other files.
func MigrateFrom(ctx context.Context, p Pools, files fs.FS) error {
	return migrateFrom(ctx, p.pools, files)
}

// DatabaseClock follows the database's clock.
type DatabaseClock struct{ *dbClock }

// NewDatabaseClock follows it on the clock.
func NewDatabaseClock(clock port.Clock) DatabaseClock { return DatabaseClock{newDBClock(clock)} }

// Observe takes note of what it showed.
func (c DatabaseClock) Observe(sent, received time.Duration, shown time.Time) time.Duration {
	return c.observe(sent, received, shown)
}

// Reading is what a statement would be told now.
func (c DatabaseClock) Reading() (estimate time.Time, quiet, watched time.Duration) {
	return c.told()
}

// Args are the arguments of a statement that is told of the time.
func (c DatabaseClock) Args() []any { return c.reading().args() }

// HeartbeatsPassing is the statement of heartbeats.
var HeartbeatsPassing = heartbeatsPassing

// WaitingBeats counts the heartbeats that wait to be sent.
func WaitingBeats(s *Store) int {
	s.beats.mu.Lock()
	defer s.beats.mu.Unlock()
	return len(s.beats.waiting)
}

// AskersOfBeats counts who waits for them.
func AskersOfBeats(s *Store) (n int) {
	s.beats.mu.Lock()
	defer s.beats.mu.Unlock()
	for _, b := range s.beats.waiting {
		n += b.askers
	}
	return n
}

// Over is the condition that a life is over.
func Over(since, until string) string { return over(since, until) }

// JudgeVersion is the check of a database that is as a Store's, but of another version.
func JudgeVersion(ctx context.Context, s *Store, version int, name string) error {
	f, _, _, err := s.facts(ctx)
	if err != nil {
		return err
	}
	f.Version, f.VersionName = version, name
	return s.judge(f)
}
