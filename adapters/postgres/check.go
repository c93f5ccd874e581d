package postgres

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/fencelock/fencelock/core/lock"
)

const (
	// minVersion is PostgreSQL 14, as server_version_num writes it.
	minVersion = 140000
	// clockSamples are taken before the first statement that compares times; the quickest answer counts.
	clockSamples  = 3
	readCommitted = "read committed"
)

// askFacts asks all that decides whether locks are safe in a database.
const askFacts = `
SELECT current_setting('server_version_num')::int AS version, current_setting('server_version') AS version_name,
       pg_is_in_recovery() AS standby, current_setting('transaction_read_only')::bool AS read_only,
       current_setting('fsync')::bool AS fsync, current_setting('full_page_writes')::bool AS full_page_writes,
       current_setting('synchronous_commit') AS synchronous_commit,
       current_setting('transaction_isolation') AS isolation,
       current_setting('IntervalStyle') AS interval_style, current_setting('DateStyle') AS date_style,
       current_setting('synchronous_standby_names') <> '' AS synchronous_standby,
       (SELECT count(*) FROM pg_stat_replication) AS standbys,
       ` + lastToken + ` AS last_token, m.floor,
       (extract(epoch FROM clock_timestamp()) * 1000000)::bigint AS now
  FROM fencelock.lock_meta m`

// facts are the answer.
type facts struct {
	Version            int
	VersionName        string
	Standby, ReadOnly  bool
	Fsync              bool
	FullPageWrites     bool
	SynchronousCommit  string
	Isolation          string
	IntervalStyle      string
	DateStyle          string
	SynchronousStandby bool
	Standbys           int64
	LastToken, Floor   int64
	// Now is the database's time, in microseconds since 1970: readable whatever its DateStyle.
	Now int64
}

// check refuses a database that is not safe to keep locks in, and sets this server's idea of its clock.
func (s *Store) check(ctx context.Context) error {
	var quickest time.Duration
	var sent, received time.Duration
	var shown time.Time
	for i := range clockSamples {
		f, start, end, err := s.facts(ctx)
		if err != nil {
			return err
		}
		if err := s.judge(f); err != nil {
			return err
		}
		if trip := end - start; i == 0 || trip < quickest {
			quickest, sent, received, shown = trip, start, end, time.UnixMicro(f.Now)
		}
	}
	s.clock.observe(sent, received, shown)
	if !s.pools.canListen() {
		s.report(Incident{Kind: NotListening})
	}
	return nil
}

// Ping implements port.Custodian, by one question to the database.
func (s *Store) Ping(ctx context.Context) error {
	seen := s.watermark.seen()
	f, _, _, err := s.facts(ctx)
	if err != nil {
		return err
	}
	if err := s.judge(f); err != nil {
		return err
	}
	return s.watermark.judge(seen, f.LastToken, f.Floor)
}

// facts asks the database, and returns also between which readings of our clock it answered.
func (s *Store) facts(ctx context.Context) (f *facts, sent, received time.Duration, err error) {
	ctx, cancel := s.call(ctx)
	defer cancel()
	conn, err := s.pools.work.Acquire(ctx)
	if err != nil {
		return nil, 0, 0, translate(err, reads)
	}
	defer conn.Release()
	sent = s.clock.elapsed()
	rows, err := conn.Query(ctx, askFacts)
	if err != nil {
		return nil, 0, 0, translate(err, reads)
	}
	f, err = pgx.CollectExactlyOneRow(rows, pgx.RowToAddrOfStructByName[facts])
	if err != nil {
		return nil, 0, 0, translate(err, reads)
	}
	return f, sent, s.clock.elapsed(), nil
}

// judge says what is wrong with a database, and reports what is only doubtful.
func (s *Store) judge(f *facts) error {
	switch {
	case f.Version < minVersion:
		return unsafeSetting("PostgreSQL %s is older than 14", f.VersionName)
	case f.Standby:
		return &lock.Error{Code: lock.CodeNotLeader, Message: "the database is a standby; locks are kept in the primary"}
	case f.ReadOnly:
		return &lock.Error{Code: lock.CodeNotLeader, Message: "the database is set to be read-only (default_transaction_read_only)"}
	case !f.Fsync:
		return unsafeSetting("fsync is off: a crash can undo grants, and give their tokens again")
	case !f.FullPageWrites:
		return unsafeSetting("full_page_writes is off: a crash can leave pages that are partly old")
	case f.SynchronousCommit == "off":
		return unsafeSetting("synchronous_commit is off: a crash can undo grants, and give their tokens again")
	case f.Isolation != readCommitted:
		return unsafeSetting("default_transaction_isolation is %q; locks need %q", f.Isolation, readCommitted)
	case s.pools.pooler && (f.IntervalStyle != "postgres" || !strings.HasPrefix(f.DateStyle, "ISO")):
		return unsafeSetting("IntervalStyle is %q and DateStyle %q; behind a pooler this server reads \"postgres\" and \"ISO\" only",
			f.IntervalStyle, f.DateStyle)
	}
	alone := f.Standbys > 0 && (!f.SynchronousStandby || f.SynchronousCommit == "local")
	if s.pools.unreplicated.Swap(alone) != alone && alone {
		s.report(Incident{Kind: Unreplicated})
	}
	return nil
}

func unsafeSetting(format string, args ...any) error {
	return &lock.Error{Code: lock.CodeUnsafeStore, Message: fmt.Sprintf(format, args...)}
}
