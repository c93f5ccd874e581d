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

// askSettings are the columns of [settings].
const askSettings = `pg_is_in_recovery() AS standby, current_setting('transaction_read_only')::bool AS read_only,
       current_setting('fsync')::bool AS fsync, current_setting('full_page_writes')::bool AS full_page_writes,
       current_setting('synchronous_commit') AS synchronous_commit,
       current_setting('transaction_isolation') AS isolation,
       current_setting('client_min_messages') AS messages`

// settings are what each connection, or each host of a URL, may have in its own way.
type settings struct {
	Standby, ReadOnly, Fsync, FullPageWrites bool
	SynchronousCommit, Isolation, Messages   string
}

// readSettings reads a row of [askSettings] in text.
func readSettings(row [][]byte) settings {
	yes := func(column int) bool { return string(row[column]) == "t" }
	return settings{
		Standby: yes(0), ReadOnly: yes(1), Fsync: yes(2), FullPageWrites: yes(3),
		SynchronousCommit: string(row[4]), Isolation: string(row[5]), Messages: string(row[6]),
	}
}

// askFacts asks all that decides whether locks are safe in a database.
const askFacts = `
SELECT ` + askSettings + `,
       current_setting('server_version_num')::int AS version, current_setting('server_version') AS version_name,
       current_setting('server_encoding') AS server_encoding, current_setting('client_encoding') AS client_encoding,
       current_setting('IntervalStyle') AS interval_style, current_setting('DateStyle') AS date_style,
       current_setting('synchronous_standby_names') <> '' AS synchronous_standby,
       ` + countStandbys + ` AS standbys,
       (SELECT q.seqcache = 1 AND q.seqincrement = 1 AND NOT q.seqcycle
          FROM pg_catalog.pg_sequence q WHERE q.seqrelid = 'fencelock.fencing_token_seq'::regclass) AS tokens_rise,
       (SELECT min(c.relname::text) FROM pg_catalog.pg_class c
         WHERE c.relnamespace = 'fencelock'::regnamespace AND c.relkind IN ('r', 'S') AND c.relpersistence <> 'p') AS unlogged,
       ` + missingRights + ` AS missing,
       ` + lastToken + ` AS last_token, m.floor,
       (extract(epoch FROM clock_timestamp()) * 1000000)::bigint AS now
  FROM fencelock.lock_meta m`

// countStandbys counts what could be promoted: neither a base backup, which has a slot for the time it takes, nor a
// subscriber. A role without pg_monitor is not shown what the others do.
const countStandbys = `(SELECT count(*) FROM pg_catalog.pg_stat_replication r WHERE coalesce(r.state, 'streaming') = 'streaming'
           AND NOT EXISTS (SELECT FROM pg_catalog.pg_replication_slots l
                            WHERE l.active_pid = r.pid AND (l.temporary OR l.slot_type = 'logical')))`

// facts are the answer.
type facts struct {
	settings

	Version            int
	VersionName        string
	ServerEncoding     string
	ClientEncoding     string
	IntervalStyle      string
	DateStyle          string
	SynchronousStandby bool
	Standbys           int64
	// TokensRise: the sequence gives each number once, and in order.
	TokensRise bool
	// Unlogged is a table that a crash empties, or a sequence that it sets back; nil if there is none.
	Unlogged *string
	// Missing are the rights that the role lacks; nil if it has all.
	Missing          *string
	LastToken, Floor int64
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
	if err := s.vetAnew(ctx); err != nil {
		return err
	}
	if err := s.judge(f); err != nil {
		return err
	}
	return s.watermark.judge(seen, f.LastToken, f.Floor)
}

// vetAnew is [pools.vetAnew] as a call of its own.
func (s *Store) vetAnew(ctx context.Context) error {
	ctx, cancel := s.call(ctx)
	defer cancel()
	return s.pools.vetAnew(ctx)
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
	rows, _ := conn.Query(ctx, askFacts) // the rows have the error too
	f, err = pgx.CollectExactlyOneRow(rows, pgx.RowToAddrOfStructByName[facts])
	if err != nil {
		return nil, 0, 0, s.pools.explain(ctx, conn, err)
	}
	return f, sent, s.clock.elapsed(), nil
}

// judge says what is wrong with a connection, or with its host.
func (s settings) judge() error {
	switch {
	case s.Standby:
		return &lock.Error{Code: lock.CodeNotLeader, Message: "the database is a standby; locks are kept in the primary"}
	case s.ReadOnly:
		return &lock.Error{Code: lock.CodeNotLeader, Message: "the database is set to be read-only (default_transaction_read_only)"}
	case !s.Fsync:
		return unsafeSetting("fsync is off: a crash can undo grants, and give their tokens again")
	case !s.FullPageWrites:
		return unsafeSetting("full_page_writes is off: a crash can leave pages that are partly old")
	case s.SynchronousCommit == "off":
		return unsafeSetting("synchronous_commit is off: a crash can undo grants, and give their tokens again")
	case s.Isolation != readCommitted:
		return unsafeSetting("default_transaction_isolation is %q; locks need %q", s.Isolation, readCommitted)
	case s.Messages == "error":
		return unsafeSetting("client_min_messages is %q, which hides that no standby has confirmed a write", s.Messages)
	}
	return nil
}

// judge says what is wrong with a database, and reports what is only doubtful.
func (s *Store) judge(f *facts) error {
	if f.Version < minVersion {
		return unsafeSetting("PostgreSQL %s is older than 14", f.VersionName)
	}
	if err := f.judge(); err != nil {
		return err
	}
	switch {
	case f.Missing != nil:
		return lacksRights(*f.Missing)
	case !isUnicode(f.ServerEncoding):
		return unsafeSetting("the database's encoding is %s, which cannot keep every name; UTF8 can", f.ServerEncoding)
	case !isUnicode(f.ClientEncoding):
		return unsafeSetting("client_encoding is %s; this server speaks UTF8", f.ClientEncoding)
	case !f.TokensRise:
		return unsafeSetting("fencing_token_seq must have INCREMENT 1, CACHE 1 and NO CYCLE: else later tokens can be lower")
	case f.Unlogged != nil:
		return unsafeSetting("%s is unlogged: a crash can undo grants, and give their tokens again", *f.Unlogged)
	case s.pools.pooler && (f.IntervalStyle != "postgres" || !strings.HasPrefix(f.DateStyle, "ISO")):
		return unsafeSetting("IntervalStyle is %q and DateStyle %q; behind a pooler this server reads \"postgres\" and \"ISO\" only",
			f.IntervalStyle, f.DateStyle)
	}
	alone := f.Standbys > 0 && (!f.SynchronousStandby || f.SynchronousCommit == "local")
	if s.pools.unreplicated.Swap(alone) != alone && alone {
		s.report(Incident{Kind: Unreplicated, Err: fmt.Errorf("standbys that follow: %d; commits wait for none of them", f.Standbys)})
	}
	return nil
}

// isUnicode reports whether an encoding keeps UTF-8 as it is.
func isUnicode(encoding string) bool { return encoding == "UTF8" || encoding == "SQL_ASCII" }

func unsafeSetting(format string, args ...any) error {
	return &lock.Error{Code: lock.CodeUnsafeStore, Message: fmt.Sprintf(format, args...)}
}
