package postgres_test

import (
	"context"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/fstest"
	"time"

	"github.com/fencelock/fencelock/adapters/postgres"
	"github.com/fencelock/fencelock/core/lock"
	"github.com/fencelock/fencelock/tools/testenv"
)

// files are the migrations up to a version.
func filesUpTo(t *testing.T, version int) fstest.MapFS {
	t.Helper()
	files := fstest.MapFS{}
	all := postgres.Migrations()
	names, err := fs.Glob(all, "*.sql")
	if err != nil || len(names) < version {
		t.Fatalf("find migrations: %v, %v", names, err)
	}
	slices.Sort(names)
	for _, name := range names[:version] {
		text, err := fs.ReadFile(all, name)
		if err != nil {
			t.Fatal(err)
		}
		files[name] = &fstest.MapFile{Data: text}
	}
	return files
}

func newest(t *testing.T) int {
	t.Helper()
	names, err := fs.Glob(postgres.Migrations(), "*.sql")
	if err != nil {
		t.Fatal(err)
	}
	return len(names)
}

// shape is all that the catalog says of the schema.
func shape(p *place) string {
	return one[string](p, `
SELECT string_agg(line, E'\n' ORDER BY line) FROM (
  SELECT format('%s.%s %s %s %s', c.relname, a.attname, format_type(a.atttypid, a.atttypmod), a.attnotnull, col_description(c.oid, a.attnum))
    FROM pg_attribute a JOIN pg_class c ON c.oid = a.attrelid WHERE c.relnamespace = 'fencelock'::regnamespace AND a.attnum > 0
  UNION ALL
  SELECT format('%s %s', c.relname, obj_description(c.oid)) FROM pg_class c WHERE c.relnamespace = 'fencelock'::regnamespace
  UNION ALL SELECT format('%s %s', proname, proconfig) FROM pg_proc WHERE pronamespace = 'fencelock'::regnamespace
  UNION ALL SELECT indexdef FROM pg_indexes WHERE schemaname = 'fencelock'
  UNION ALL SELECT pg_get_triggerdef(t.oid) FROM pg_trigger t JOIN pg_class c ON c.oid = t.tgrelid WHERE c.relnamespace = 'fencelock'::regnamespace
) AS shape (line)`)
}

// TestTriggersCallNobodyElsesFunctions: whoever may create functions in a schema that is searched could make one that fits better, and run it
// with the rights of the server, or of an operator who changes something by hand.
func TestTriggersCallNobodyElsesFunctions(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	held := p.grab("held", p.open(lock.MaxTTL))
	for _, args := range []string{"text, text, text, bigint", "text, text, text, text, text, text"} {
		p.exec("CREATE FUNCTION public.json_build_object(" + args + ") RETURNS json LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'somebody else''s'; END $$")
	}
	p.exec("UPDATE fencelock.lock_entry SET awaited = true")
	for _, change := range []string{
		"UPDATE fencelock.lock_entry SET session = NULL", "UPDATE fencelock.lock_session SET ended_at = now()",
		"INSERT INTO fencelock.lock_revocation (operator, reason, at, floor) VALUES ('op', 'by hand', now(), 0)",
	} {
		p.exec(change)
	}
	p.release(p.grab(held.Key.Name(), p.open(lock.MaxTTL)))
	if n := one[int](p, "SELECT count(*) FROM pg_proc WHERE pronamespace = 'fencelock'::regnamespace AND proconfig IS NULL"); n != 0 {
		t.Errorf("%d functions of the schema search where their caller does", n)
	}
}

// TestServersMigrateAtOnce: all servers of a new installation start together.
func TestServersMigrateAtOnce(t *testing.T) {
	t.Parallel()
	const servers = 8
	url := testenv.Postgres(t).Database(t)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	var work sync.WaitGroup
	for range servers {
		work.Go(func() {
			if err := postgres.Migrate(ctx, postgres.Access{URL: url}); err != nil {
				t.Errorf("migrate: %v", err)
			}
		})
	}
	work.Wait()
	p := &place{t: t, raw: raw(t, url)}
	if n := one[int](p, "SELECT count(*) FROM fencelock.goose_db_version"); n != newest(t)+1 {
		t.Errorf("%d versions are noted, want each of %d once, and the beginning", n, newest(t))
	}
	if one[bool](p, "SELECT locked FROM fencelock.goose_lock") {
		t.Error("the lock on migrations is still held")
	}
	if n := one[int](p, `SELECT count(*) FROM pg_class c WHERE c.relnamespace = 'fencelock'::regnamespace
	   AND c.relkind IN ('r', 'S') AND obj_description(c.oid) IS NULL AND c.relname NOT LIKE '%\_id\_seq'`); n != 0 {
		t.Errorf("%d tables or sequences have no comment for who looks at them", n)
	}
}

// TestMigrateFromEveryVersion: an installation of any age, with data in it, becomes what a new one is.
func TestMigrateFromEveryVersion(t *testing.T) {
	t.Parallel()
	fresh := newPlace(t)
	want := shape(fresh)
	for version := 1; version <= newest(t); version++ {
		t.Run(fmt.Sprint(version), func(t *testing.T) {
			t.Parallel()
			url := testenv.Postgres(t).Database(t)
			pools := openPools(t, postgres.Access{URL: url})
			if err := postgres.MigrateFrom(t.Context(), pools, filesUpTo(t, version)); err != nil {
				t.Fatal(err)
			}
			p := &place{t: t, raw: raw(t, url)}
			if got := one[int](p, "SELECT max(version_id) FROM fencelock.goose_db_version"); got != version {
				t.Fatalf("the schema is at version %d, want %d", got, version)
			}
			id := lock.NewSessionID()
			p.exec(`INSERT INTO fencelock.lock_session (secret, owner, ttl, created_at, renewed_at, expires_at)
			        VALUES ($1::uuid, 'tester', '10 min', now(), now(), now() + interval '10 min')`, id.Reveal())
			p.exec(`INSERT INTO fencelock.lock_entry (namespace, key, token, session, request_id, granted_at)
			        SELECT 'default', 'old', nextval('fencelock.fencing_token_seq'), id, 'r', now() FROM fencelock.lock_session`)
			p.Store = dial(t, postgres.Access{URL: url}, config())
			if got := shape(p); got != want {
				t.Errorf("the schema differs from a new one:\n%s", difference(got, want))
			}
			grants, err := p.LocksOf(t.Context(), id)
			if err != nil || len(grants) != 1 {
				t.Fatalf("the lock from before: %+v, %v", grants, err)
			}
			p.release(grants[0])
			if again := p.grab("old", lock.Session{ID: id}); again.Token <= grants[0].Token {
				t.Errorf("token %d after %d", again.Token, grants[0].Token)
			}
		})
	}
}

func difference(got, want string) string {
	var lines []string
	for line := range strings.SplitSeq(got, "\n") {
		if !strings.Contains(want, line) {
			lines = append(lines, "+ "+line)
		}
	}
	for line := range strings.SplitSeq(want, "\n") {
		if !strings.Contains(got, line) {
			lines = append(lines, "- "+line)
		}
	}
	return strings.Join(lines, "\n")
}

// TestMigrationOfADeadServerBlocksNotForLong: it is killed in the middle, and leaves its lock behind.
func TestMigrationOfADeadServerBlocksNotForLong(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	files := filesUpTo(t, newest(t))
	files["00900_slow.sql"] = &fstest.MapFile{Data: []byte("-- +goose Up\nLOCK TABLE fencelock.lock_meta;\nCREATE TABLE fencelock.late (id int);\n")}
	proxy := testenv.NewProxy(t, address(t, p.url))
	doomed, heir := openPools(t, postgres.Access{URL: through(t, p.url, proxy)}), openPools(t, postgres.Access{URL: p.url})
	obstacle, err := p.raw.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := obstacle.Exec(t.Context(), "SELECT FROM fencelock.lock_meta FOR UPDATE"); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- postgres.MigrateFrom(t.Context(), doomed, files) }()
	eventually(t, "the migration is under way", func() bool { return rows(t, p.raw, activity, "LOCK TABLE%") == 1 })
	proxy.Cut()
	refused(t, "the migration of the dead", <-ended)
	if !one[bool](p, "SELECT locked FROM fencelock.goose_lock") {
		t.Fatal("the dead has given its lock back")
	}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	refused(t, "migrate while another server seems to", postgres.MigrateFrom(ctx, heir, files))
	cancel()
	if err := obstacle.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	ctx, cancel = context.WithTimeout(t.Context(), 20*time.Second) // it takes 5
	defer cancel()
	if err := postgres.MigrateFrom(ctx, heir, files); err != nil {
		t.Errorf("migrate: %v", err)
	}
}

// TestMigrationIsAppliedOnce: also by a server that was stopped for so long that its lock ran out.
func TestMigrationIsAppliedOnce(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	if _, err := p.raw.Exec(t.Context(), "INSERT INTO fencelock.goose_db_version (version_id, is_applied) VALUES (1, true)"); err == nil {
		t.Error("a migration was noted as applied twice")
	}
}

// TestNewerSchemaIsLeftAlone: during an upgrade servers of the version before start as well, also while another one migrates.
func TestNewerSchemaIsLeftAlone(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	p.exec("UPDATE fencelock.goose_lock SET locked = true, locked_by = 'another', lease_expires_at = now() + interval '1 h'")
	p.exec("INSERT INTO fencelock.goose_db_version (version_id, is_applied) VALUES (999, true)")
	p.exec("ALTER TABLE fencelock.lock_entry ADD COLUMN color text")
	older := p.another()
	if err := older.Ping(t.Context()); err != nil {
		t.Errorf("ping: %v", err)
	}
	p.grab("a", p.open(lock.MaxTTL))
	if n := one[int](p, "SELECT max(version_id) FROM fencelock.goose_db_version"); n != 999 {
		t.Errorf("the version is %d now", n)
	}
}

// TestMigrationThatFailsIsUndone, says why, and goes on where it stopped.
func TestMigrationThatFailsIsUndone(t *testing.T) {
	t.Parallel()
	url := testenv.Postgres(t).Database(t)
	pools := openPools(t, postgres.Access{URL: url})
	files := filesUpTo(t, newest(t))
	files["00900_bad.sql"] = &fstest.MapFile{Data: []byte("-- +goose Up\nCREATE TABLE fencelock.half (id int);\nSELECT 1/0;\n")}
	err := postgres.MigrateFrom(t.Context(), pools, files)
	refused(t, "a migration that fails", err)
	if err == nil || !strings.Contains(err.Error(), "division by zero") || !strings.Contains(err.Error(), "900") {
		t.Errorf("the error does not say why: %v", err)
	}
	p := &place{t: t, raw: raw(t, url)}
	if n := one[int](p, "SELECT count(*) FROM pg_tables WHERE tablename = 'half'"); n != 0 {
		t.Error("half of it was applied")
	}
	if n := one[int](p, "SELECT max(version_id) FROM fencelock.goose_db_version"); n != newest(t) {
		t.Errorf("the version is %d now", n)
	}
	files["00900_bad.sql"] = &fstest.MapFile{Data: []byte("-- +goose Up\nCREATE TABLE fencelock.half (id int);\n")}
	if err := postgres.MigrateFrom(t.Context(), pools, files); err != nil {
		t.Errorf("mended: %v", err)
	}
}

// TestServersNeedNoRightToMigrate: another role may have done it.
func TestServersNeedNoRightToMigrate(t *testing.T) {
	t.Parallel()
	r := newRole(t)
	err := postgres.Migrate(t.Context(), r.access)
	refused(t, "migrate without a right", err)
	if want := fmt.Sprintf("there is no schema yet, this server needs version %d, and its role may not migrate: run lockserver migrate", newest(t)); err == nil ||
		!strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "permission denied") {
		t.Errorf("the error does not say why: %v", err)
	}
	if err := postgres.Migrate(t.Context(), postgres.Access{URL: r.url}); err != nil {
		t.Fatal(err)
	}
	r.grantAll()
	p := placeAt(t, r.access, config())
	g := p.grab("a", p.open(lock.MaxTTL))
	p.release(g)
	if err := p.Ping(t.Context()); err != nil {
		t.Errorf("ping: %v", err)
	}
}

// TestRoleWithASchemaOfItsOwnMayMigrate: it needs no right on the database where somebody has made the schema for it.
func TestRoleWithASchemaOfItsOwnMayMigrate(t *testing.T) {
	t.Parallel()
	r := newRole(t)
	r.exec("CREATE SCHEMA fencelock AUTHORIZATION " + r.name)
	p := placeAt(t, r.access, config())
	p.grab("a", p.open(lock.MaxTTL))
}
