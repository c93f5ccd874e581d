package postgres_test

import (
	"context"
	"errors"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgproto3"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/fencelock/fencelock/adapters/postgres"
	"github.com/fencelock/fencelock/core/lock"
	"github.com/fencelock/fencelock/core/port"
	"github.com/fencelock/fencelock/tools/testenv"
)

// refuses expects that neither a new Store nor one that is there already grants from the database.
func refuses(t *testing.T, p *place, access postgres.Access, want error, hint string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	store, err := postgres.Dial(ctx, access, config())
	if err == nil {
		_ = store.Close()
	}
	if !errors.Is(err, want) || err == nil || !strings.Contains(err.Error(), hint) {
		t.Errorf("dial: got %v, want %v that speaks of %s", err, want, hint)
	}
	if p == nil {
		return
	}
	p.reset()
	if err := p.Ping(ctx); !errors.Is(err, want) || !strings.Contains(err.Error(), hint) {
		t.Errorf("ping: got %v, want %v that speaks of %s", err, want, hint)
	}
}

// reset lets the Store make new connections, which have new settings.
func (p *place) reset() {
	postgres.PoolsOf(p.Store).Work().Reset()
	postgres.PoolsOf(p.Store).Beats().Reset()
}

// TestSettingsOfTheDatabaseThatAreNotSafe: those that a database, or a role in it, can be given.
func TestSettingsOfTheDatabaseThatAreNotSafe(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, value string
		want        error
		pooler      bool // behind one, the Store cannot set it right by itself
	}{
		{"synchronous_commit", "off", lock.ErrUnsafeStore, false},
		{"default_transaction_isolation", "serializable", lock.ErrUnsafeStore, true},
		{"default_transaction_isolation", "repeatable read", lock.ErrUnsafeStore, true},
		{"default_transaction_read_only", "on", lock.ErrNotLeader, false},
		{"IntervalStyle", "iso_8601", lock.ErrUnsafeStore, true},
		{"DateStyle", "German", lock.ErrUnsafeStore, true},
		{"client_encoding", "LATIN1", lock.ErrUnsafeStore, true},
		{"client_min_messages", "error", lock.ErrUnsafeStore, true},
	} {
		t.Run(c.name+" "+c.value, func(t *testing.T) {
			t.Parallel()
			access := postgres.Access{URL: testenv.Postgres(t).Database(t), Pooler: c.pooler}
			p := placeAt(t, access, config())
			name := one[string](p, "SELECT current_database()")
			p.exec("ALTER DATABASE " + name + " SET " + c.name + " = '" + c.value + "'")
			refuses(t, p, access, c.want, c.name)
			if c.pooler {
				p.Store = dial(t, postgres.Access{URL: access.URL}, config())
				if err := p.Ping(t.Context()); err != nil {
					t.Errorf("without a pooler: %v", err)
				}
			}
		})
	}
}

// TestSettingsThatOnlyNewConnectionsHave: those from before may be all that a probe would meet.
func TestSettingsThatOnlyNewConnectionsHave(t *testing.T) {
	t.Parallel()
	p := placeAt(t, postgres.Access{URL: testenv.Postgres(t).Database(t) + "&pool_max_conns=8"}, config())
	session := p.open(lock.MaxTTL)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	pools := postgres.PoolsOf(p.Store)
	alter := "ALTER DATABASE " + one[string](p, "SELECT current_database()")
	p.exec(alter + " SET synchronous_commit = off")
	var inUse []*pgxpool.Conn
	var err error
	for range pools.Work().Config().MaxConns {
		var conn *pgxpool.Conn
		if conn, err = pools.Work().Acquire(ctx); err != nil {
			break
		}
		inUse = append(inUse, conn)
	}
	expect(t, "a new connection", postgres.Translate(err, false), lock.ErrUnsafeStore)
	for _, conn := range inUse {
		conn.Release()
	}
	expect(t, "ping", p.Ping(ctx), lock.ErrUnsafeStore)
	pools.Beats().Reset()
	_, err = p.Heartbeat(ctx, session.ID)
	expect(t, "heartbeat", err, lock.ErrUnsafeStore)

	p.exec(alter + " RESET synchronous_commit")
	if err := p.Ping(ctx); err != nil {
		t.Errorf("ping, with all set right: %v", err)
	}
	if _, err := p.Heartbeat(ctx, session.ID); err != nil {
		t.Errorf("heartbeat, with all set right: %v", err)
	}
}

// TestTablesThatAreNotSafe: what somebody can do to the schema's own.
func TestTablesThatAreNotSafe(t *testing.T) {
	t.Parallel()
	for what, hint := range map[string]string{
		"SEQUENCE fencelock.fencing_token_seq CACHE 20":     "CACHE",
		"SEQUENCE fencelock.fencing_token_seq CYCLE":        "CYCLE",
		"SEQUENCE fencelock.fencing_token_seq INCREMENT -1": "INCREMENT",
		"TABLE fencelock.lock_entry SET UNLOGGED":           "lock_entry",
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			p := newPlace(t)
			p.exec("ALTER " + what)
			refuses(t, p, postgres.Access{URL: p.url}, lock.ErrUnsafeStore, hint)
		})
	}
}

// TestEncodings: a database keeps every name, or is refused at once.
func TestEncodings(t *testing.T) {
	t.Parallel()
	admin := raw(t, testenv.Postgres(t).URL)
	for encoding, safe := range map[string]bool{"LATIN1": false, "EUC_JP": false, "SQL_ASCII": true} {
		name := "fencelock_test_" + lock.NewSessionID().Reveal()
		mustExec(t, admin, "CREATE DATABASE "+name+" TEMPLATE template0 ENCODING '"+encoding+"' LOCALE 'C'")
		t.Cleanup(func() { _, _ = admin.Exec(context.WithoutCancel(t.Context()), "DROP DATABASE "+name+" WITH (FORCE)") })
		target, err := url.Parse(testenv.Postgres(t).URL)
		if err != nil {
			t.Fatal(err)
		}
		target.Path = "/" + name
		if !safe {
			refuses(t, nil, postgres.Access{URL: target.String()}, lock.ErrUnsafeStore, encoding)
			continue
		}
		store := dial(t, postgres.Access{URL: target.String()}, config())
		owner := lock.Owner("é Жук Ωμέγα 🔒")
		if _, err := store.OpenSession(t.Context(), port.OpenRequest{Owner: owner, TTL: lock.MaxTTL, Metadata: map[string]string{"who": string(owner)}}); err != nil {
			t.Errorf("%s: %v", encoding, err)
		}
		all, _, err := store.Sessions(t.Context(), port.Page{Size: 10})
		if err != nil || len(all) != 1 || all[0].Owner != owner || all[0].Metadata["who"] != string(owner) {
			t.Errorf("%s: %+v, %v", encoding, all, err)
		}
	}
}

// TestServersThatAreNotSafe: settings of a whole server.
func TestServersThatAreNotSafe(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"fsync", "full_page_writes"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := testenv.StartPostgres(t, name+"=off")
			refuses(t, nil, postgres.Access{URL: server.Database(t)}, lock.ErrUnsafeStore, name)
		})
	}
}

// TestVersionsThatAreTooOld cannot be had here, so the answer of one that can is changed.
func TestVersionsThatAreTooOld(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	err := postgres.JudgeVersion(t.Context(), p.Store, 130022, "13.22")
	if !errors.Is(err, lock.ErrUnsafeStore) || !strings.Contains(err.Error(), "13.22") {
		t.Errorf("version 13.22: %v", err)
	}
	if err := postgres.JudgeVersion(t.Context(), p.Store, 140000, "14.0"); err != nil {
		t.Errorf("version 14.0: %v", err)
	}
}

// TestStandbyIsNoStore, until it is promoted: then it is one without a restart of anybody.
func TestStandbyIsNoStore(t *testing.T) {
	t.Parallel()
	server := testenv.StartPostgres(t)
	access := postgres.Access{URL: server.Database(t)}
	p := placeAt(t, access, config())
	session := p.open(lock.MaxTTL)
	p.grab("a", session)
	p.exec("COPY (SELECT) TO PROGRAM 'cat >standby.signal'") // in the server's own folder
	server.Stop()
	server.Restart()
	eventually(t, "the store says that it is a standby", func() bool {
		return errors.Is(p.Ping(t.Context()), lock.ErrNotLeader)
	})
	refuses(t, p, access, lock.ErrNotLeader, "standby")
	_, err := p.TryInsert(t.Context(), request(key(t, "b"), session.ID))
	expect(t, "acquire from a standby", err, lock.ErrNotLeader)
	refused(t, "acquire from a standby", err)
	_, err = p.Heartbeat(t.Context(), session.ID)
	expect(t, "heartbeat to a standby", err, lock.ErrNotLeader)
	p.raw.Reset()
	p.exec("SELECT pg_promote()")
	eventually(t, "service returns", func() bool {
		a, err := p.TryInsert(t.Context(), request(key(t, "b"), session.ID))
		return err == nil && a.Granted
	})
	if _, err := p.Heartbeat(t.Context(), session.ID); err != nil {
		t.Errorf("heartbeat: %v", err)
	}
	if err := p.Ping(t.Context()); err != nil {
		t.Errorf("ping: %v", err)
	}
}

// TestStandbyOfSeveralHostsIsNotAsked: it knows less than the primary did, so what it says of a session or a grant is wrong.
func TestStandbyOfSeveralHostsIsNotAsked(t *testing.T) {
	t.Parallel()
	primary, standby := testenv.StartPostgres(t), testenv.StartPostgres(t)
	p := placeAt(t, postgres.Access{URL: primary.URL}, config())
	late := placeAt(t, postgres.Access{URL: standby.URL}, config())
	target, err := url.Parse(primary.URL)
	if err != nil {
		t.Fatal(err)
	}
	for _, at := range []*place{p, late} {
		at.exec("CREATE ROLE fencelock LOGIN SUPERUSER PASSWORD 'secret'")
	}
	target.User = url.UserPassword("fencelock", "secret")
	late.exec("COPY (SELECT) TO PROGRAM 'cat >standby.signal'") // in the server's own folder
	_ = late.Close()
	standby.Stop()
	standby.Restart()

	first, second := address(t, primary.URL), address(t, standby.URL)
	for _, hosts := range []string{first + "," + second, second + "," + first} {
		target.Host = hosts
		both := placeAt(t, postgres.Access{URL: target.String()}, config())
		session := both.open(lock.MaxTTL)
		held := both.grab("held-by-"+session.ID.String(), session)
		if grants, err := both.LocksOf(t.Context(), session.ID); err != nil || len(grants) != 1 {
			t.Errorf("with both there: %+v, %v", grants, err)
		}
		primary.Stop()
		for range 3 {
			_, listed := both.LocksOf(t.Context(), session.ID)
			_, _, settled := both.Settle(t.Context(), held.Key, held.Session, held.RequestID)
			_, renewed := both.Heartbeat(t.Context(), session.ID)
			for what, err := range map[string]error{"list": listed, "settle": settled, "heartbeat": renewed} {
				if !lock.IsRetryable(err) {
					t.Errorf("%s: got %v, want a retryable error", what, err)
				}
			}
		}
		expect(t, "ping", both.Ping(t.Context()), lock.ErrNotLeader)
		primary.Restart()
		if a, err := both.TryInsert(t.Context(), request(held.Key, session.ID)); err != nil || a.Granted {
			t.Errorf("with the primary back: %+v, %v", a, err)
		}
	}
}

// TestConnectionThatBecameReadOnlyIsGivenUp: the next one may lead to where it can write.
func TestConnectionThatBecameReadOnlyIsGivenUp(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	session := p.open(lock.MaxTTL)
	for name, pool := range map[string]*pgxpool.Pool{"work": postgres.PoolsOf(p.Store).Work(), "beats": postgres.PoolsOf(p.Store).Beats()} {
		conn, err := pool.Acquire(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if _, err := conn.Exec(t.Context(), "SET default_transaction_read_only = on"); err != nil {
			t.Fatal(err)
		}
		_, err = conn.Exec(t.Context(), "UPDATE fencelock.lock_session SET ttl = ttl")
		expect(t, name, postgres.Translate(err, true), lock.ErrNotLeader)
		refused(t, name, postgres.Translate(err, true))
		if !conn.Conn().IsClosed() {
			t.Errorf("%s: the connection is kept", name)
		}
		conn.Release()
	}
	if _, err := p.Heartbeat(t.Context(), session.ID); err != nil {
		t.Errorf("heartbeat: %v", err)
	}
}

// TestStandbysWithoutASynchronousOneAreReported, once each time.
func TestStandbysWithoutASynchronousOneAreReported(t *testing.T) {
	t.Parallel()
	server := testenv.StartPostgres(t)
	p := placeAt(t, postgres.Access{URL: server.Database(t)}, config())
	reported := func() (n int) {
		t.Helper()
		if err := p.Ping(t.Context()); err != nil {
			t.Fatalf("ping: %v", err)
		}
		for len(p.told) > 0 {
			if i := <-p.told; i.Kind == postgres.Unreplicated {
				n++
				if i.Err == nil {
					t.Error("reported without a cause")
				}
			}
		}
		return n
	}
	if n := reported(); n != 0 {
		t.Errorf("%d reports without a standby", n)
	}
	replicate(p, "backup", "BASE_BACKUP")
	replicate(p, "streaming", "CREATE_REPLICATION_SLOT backup TEMPORARY PHYSICAL RESERVE_WAL", "START_REPLICATION SLOT backup PHYSICAL %s")
	if n := reported(); n != 0 {
		t.Errorf("%d reports of base backups", n)
	}
	replicate(p, "streaming", "START_REPLICATION PHYSICAL %s")
	if n, again := reported(), reported(); n != 1 || again != 0 {
		t.Errorf("%d reports of a standby, and %d of the same later", n, again)
	}
	names := func(value, local string) {
		t.Helper()
		p.exec("ALTER SYSTEM SET synchronous_standby_names = '" + value + "'")
		p.exec("ALTER SYSTEM SET synchronous_commit = " + local)
		p.exec("SELECT pg_reload_conf()")
		eventually(t, "the server has the setting", func() bool {
			// Each connection reads the settings when it is used next.
			for _, pool := range []*pgxpool.Pool{p.raw, postgres.PoolsOf(p.Store).Work()} {
				pool.Reset()
				if setting(t, pool, "synchronous_standby_names") != value || setting(t, pool, "synchronous_commit") != local {
					return false
				}
			}
			return true
		})
	}
	names("*", "on")
	if n := reported(); n != 0 {
		t.Errorf("%d reports of a synchronous standby", n)
	}
	names("*", "local")
	if n := reported(); n != 1 {
		t.Errorf("%d reports of a standby that commits do not wait for", n)
	}
	names("", "on")
	if n := reported(); n != 0 {
		t.Errorf("%d reports of what was told", n)
	}
}

// replicate opens a connection as standbys and backups do, which stays in the state; %s in a command stands for where the log is now.
func replicate(p *place, state string, commands ...string) {
	p.t.Helper()
	conn, err := pgconn.Connect(p.t.Context(), p.url+"&replication=true")
	if err != nil {
		p.t.Fatalf("replicate: %v", err)
	}
	p.t.Cleanup(func() { _ = conn.Close(context.WithoutCancel(p.t.Context())) })
	last := len(commands) - 1
	for _, command := range commands[:last] {
		if _, err := conn.Exec(p.t.Context(), command).ReadAll(); err != nil {
			p.t.Fatalf("%s: %v", command, err)
		}
	}
	now := one[string](p, "SELECT pg_current_wal_flush_lsn()::text")
	conn.Frontend().SendQuery(&pgproto3.Query{String: strings.ReplaceAll(commands[last], "%s", now)})
	if err := conn.Frontend().Flush(); err != nil {
		p.t.Fatalf("replicate: %v", err)
	}
	timeout := time.After(patience)
	for one[int](p, "SELECT count(*) FROM pg_stat_replication WHERE pid = $1 AND state = $2", conn.PID(), state) != 1 {
		select {
		case <-timeout:
			p.t.Fatalf("%s is in no state of %s", commands[last], state)
		case <-time.After(10 * time.Millisecond):
		}
	}
}

// TestStoreThatCannotListenSaysSo: its waiters poll.
func TestStoreThatCannotListenSaysSo(t *testing.T) {
	t.Parallel()
	url := testenv.Postgres(t).Database(t)
	p := placeAt(t, postgres.Access{URL: url, Pooler: true}, config())
	p.hears(postgres.NotListening)
	direct := placeAt(t, postgres.Access{URL: url, Pooler: true, ListenURL: url}, config())
	for len(direct.told) > 0 {
		if i := <-direct.told; i.Kind == postgres.NotListening {
			t.Error("a Store that can listen says that it cannot")
		}
	}
}

// TestPingOfASchemaThatIsNotThere says so, and is retryable: somebody may be restoring it.
func TestPingOfASchemaThatIsNotThere(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	p.exec("ALTER SCHEMA fencelock RENAME TO elsewhere")
	refused(t, "ping", p.Ping(t.Context()))
	p.exec("ALTER SCHEMA elsewhere RENAME TO fencelock")
	if err := p.Ping(t.Context()); err != nil {
		t.Errorf("ping: %v", err)
	}
}
