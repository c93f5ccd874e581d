package postgres_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/fencelock/fencelock/adapters/postgres"
	"github.com/fencelock/fencelock/core/lock"
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
			}
		}
		return n
	}
	if n := reported(); n != 0 {
		t.Errorf("%d reports without a standby", n)
	}
	standby, err := pgconn.Connect(t.Context(), p.url+"&replication=true")
	if err != nil {
		t.Fatal(err)
	}
	defer standby.Close(t.Context())
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
