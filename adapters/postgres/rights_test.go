package postgres_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/fencelock/fencelock/adapters/postgres"
	"github.com/fencelock/fencelock/core/lock"
	"github.com/fencelock/fencelock/tools/testenv"
)

// role is a role without any right on a database of its own.
type role struct {
	t *testing.T
	// url is a superuser's.
	url    string
	admin  *pgxpool.Pool
	name   string
	access postgres.Access
}

func newRole(t *testing.T) role {
	t.Helper()
	url := testenv.Postgres(t).Database(t)
	r := role{t: t, url: url, admin: raw(t, url), name: "fencelock_test_" + lock.NewSessionID().Reveal()}
	r.exec("CREATE ROLE " + r.name + " LOGIN PASSWORD 'secret'")
	t.Cleanup(func() {
		ctx := context.WithoutCancel(t.Context())
		_, _ = r.admin.Exec(ctx, "DROP OWNED BY "+r.name+" CASCADE")
		if _, err := r.admin.Exec(ctx, "DROP ROLE "+r.name); err != nil {
			t.Logf("drop role: %v", err)
		}
	})
	_, rest, _ := strings.Cut(strings.TrimPrefix(url, "postgres://"), "@")
	r.access = postgres.Access{URL: "postgres://" + r.name + ":secret@" + rest}
	return r
}

func (r role) exec(sql string) {
	r.t.Helper()
	mustExec(r.t, r.admin, sql)
}

// grantAll gives the role all rights that a server may have.
func (r role) grantAll() {
	r.t.Helper()
	for _, right := range []string{
		"USAGE ON SCHEMA fencelock", "SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA fencelock",
		"SELECT, UPDATE ON ALL SEQUENCES IN SCHEMA fencelock",
	} {
		r.exec("GRANT " + right + " TO " + r.name)
	}
}

// rights are those that a server needs, as they are granted, and as they are named where they are missing.
func rights() map[string]string {
	needed := map[string]string{
		"USAGE ON SCHEMA fencelock":                        "USAGE on schema fencelock",
		"SELECT ON fencelock.goose_db_version":             "SELECT on goose_db_version",
		"SELECT ON SEQUENCE fencelock.fencing_token_seq":   "SELECT on fencing_token_seq",
		"UPDATE ON SEQUENCE fencelock.fencing_token_seq":   "UPDATE on fencing_token_seq",
		"INSERT, UPDATE, DELETE ON fencelock.lock_session": "DELETE on lock_session, INSERT on lock_session, UPDATE on lock_session",
		"SELECT, INSERT ON fencelock.lock_revocation":      "INSERT on lock_revocation, SELECT on lock_revocation",
	}
	for table, rights := range map[string][]string{
		"lock_session": {"SELECT", "INSERT", "UPDATE", "DELETE"}, "lock_entry": {"SELECT", "INSERT", "UPDATE", "DELETE"},
		"lock_meta": {"SELECT", "UPDATE"}, "lock_revocation": {"SELECT", "INSERT"},
	} {
		for _, right := range rights {
			needed[right+" ON fencelock."+table] = right + " on " + table
		}
	}
	return needed
}

// TestRightsThatAreMissingAreNamed: a server that may not write does not start as if it could grant, and one whose rights are taken away
// is not ready any more.
func TestRightsThatAreMissingAreNamed(t *testing.T) {
	t.Parallel()
	r := newRole(t)
	if err := postgres.Migrate(t.Context(), postgres.Access{URL: r.url}); err != nil {
		t.Fatal(err)
	}
	r.grantAll()
	running := dial(t, r.access, config())
	for right, named := range rights() {
		r.exec("REVOKE " + right + " FROM " + r.name)
		store, err := postgres.Dial(t.Context(), r.access, config())
		if err == nil {
			_ = store.Close()
		}
		for what, err := range map[string]error{"dial": err, "ping": running.Ping(t.Context())} {
			if what == "ping" && strings.Contains(right, "goose") {
				continue // nobody asks for the version again
			}
			if refused(t, what+" without "+right, err); err != nil && !strings.HasSuffix(err.Error(), "the server's role lacks rights: "+named) {
				t.Errorf("%s without %s: %v", what, right, err)
			}
		}
		r.exec("GRANT " + right + " TO " + r.name)
	}
	if err := running.Ping(t.Context()); err != nil {
		t.Errorf("ping, with all rights again: %v", err)
	}
	r.exec("REVOKE UPDATE, DELETE ON fencelock.lock_revocation FROM " + r.name)
	r.exec("REVOKE INSERT, UPDATE, DELETE ON fencelock.goose_db_version, fencelock.goose_lock FROM " + r.name)
	r.exec("REVOKE INSERT, DELETE ON fencelock.lock_meta FROM " + r.name)
	dial(t, r.access, config())
}

// TestAnOlderSchemaOfSomebodyElses: it is said what to do, and nothing of how migrations are locked.
func TestAnOlderSchemaOfSomebodyElses(t *testing.T) {
	t.Parallel()
	r := newRole(t)
	if err := postgres.MigrateFrom(t.Context(), openPools(t, postgres.Access{URL: r.url}), filesUpTo(t, 1)); err != nil {
		t.Fatal(err)
	}
	r.grantAll()
	r.exec("REVOKE INSERT, UPDATE, DELETE ON fencelock.goose_db_version, fencelock.goose_lock FROM " + r.name)
	store, err := postgres.Dial(t.Context(), r.access, config())
	if err == nil {
		_ = store.Close()
	}
	refused(t, "dial", err)
	want := fmt.Sprintf("the schema is at version 1, this server needs version %d, and its role may not migrate: run lockserver migrate as a role that may", newest(t))
	if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "advisory") || strings.Contains(err.Error(), "turn") {
		t.Errorf("dial: %v, want %s", err, want)
	}
}

// TestAPoolerThatNobodySpokeOf: the pooler's own words explain little.
func TestAPoolerThatNobodySpokeOf(t *testing.T) {
	t.Parallel()
	direct := testenv.Postgres(t).Database(t)
	for what, access := range map[string]postgres.Access{
		"pooler":          {URL: testenv.PgBouncer(t, direct)},
		"unknown setting": {URL: direct + "&no_such_setting=1"},
	} {
		err := postgres.Migrate(t.Context(), access)
		refused(t, what, err)
		if err == nil || !strings.Contains(err.Error(), "postgres.pooler is not set") {
			t.Errorf("%s: %v", what, err)
		}
	}
	access := postgres.Access{URL: testenv.PgBouncer(t, direct) + "&no_such_setting=1", Pooler: true}
	if err := postgres.Migrate(t.Context(), access); err == nil || strings.Contains(err.Error(), "postgres.pooler") {
		t.Errorf("with it set: %v", err)
	}
}
