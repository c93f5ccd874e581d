package main

import (
	"bytes"
	"context"
	"net/http"
	"net/url"
	"os"
	"regexp"
	"strings"
	"testing"

	"connectrpc.com/connect"
	"github.com/jackc/pgx/v5"

	"github.com/fencelock/fencelock/apps/program"
	fencelockv1 "github.com/fencelock/fencelock/contracts/api/fencelock/v1"
	"github.com/fencelock/fencelock/contracts/api/fencelock/v1/fencelockv1connect"
	"github.com/fencelock/fencelock/tools/testenv"
)

// manual returns the statements of docs/operations.md that are marked with the word.
func manual(t *testing.T, word string) []string {
	t.Helper()
	text, err := os.ReadFile("../../docs/operations.md")
	if err != nil {
		t.Fatal(err)
	}
	var found []string
	for _, block := range regexp.MustCompile("(?s)\n```sql "+word+"\n(.*?)\n```\n").FindAllStringSubmatch(string(text), -1) {
		found = append(found, block[1])
	}
	if len(found) == 0 {
		t.Fatalf("the manual has no %s", word)
	}
	return found
}

// cluster is a PostgreSQL of its own, since roles are for all its databases.
type cluster struct{ super *url.URL }

func newCluster(t *testing.T) cluster {
	t.Helper()
	super, err := url.Parse(testenv.StartPostgres(t).URL)
	if err != nil {
		t.Fatal(err)
	}
	return cluster{super: super}
}

// as is the URL of a role for the database of the manual.
func (c cluster) as(role string) string {
	u := *c.super
	u.User, u.Path = url.UserPassword(role, "secret"), "/fencelock"
	return u.String()
}

// superuser is the superuser's URL for a database.
func (c cluster) superuser(database string) string {
	u := *c.super
	u.Path = "/" + database
	return u.String()
}

// execute sends statements, of which the last one may have rows, and returns how many it concerned.
func execute(t *testing.T, address, statements string) int64 {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), address)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close(t.Context()) }()
	results, err := conn.PgConn().Exec(t.Context(), statements).ReadAll()
	if err != nil {
		t.Fatalf("%s: %v", statements, err)
	}
	return results[len(results)-1].CommandTag.RowsAffected()
}

// TestTheManualOfPostgreSQL does what operations.md says: two roles, of which the one of the servers has few rights, what to look at
// with psql, and how to end a session.
func TestTheManualOfPostgreSQL(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	execute(t, c.superuser("postgres"), "CREATE DATABASE fencelock")
	execute(t, c.superuser("postgres"), manual(t, "roles")[0])
	server := postgres(c.as("fencelock_server"), t.TempDir())
	t.Run("the servers' role makes no schema", func(t *testing.T) {
		if p := server.begin(t); p.exit(t) != program.ExitFailed || !strings.Contains(p.errors.String(), "run lockserver migrate as a role that may") {
			t.Errorf("exit code %d: %s", p.exit(t), p.errors)
		}
	})
	var out, errs bytes.Buffer
	if code := lockserver().Run([]string{"migrate"}, postgres(c.as("fencelock_owner"), "").env, &out, &errs, nil); code != program.ExitOK {
		t.Fatalf("migrate: exit code %d: %s", code, errs.String())
	}
	execute(t, c.as("fencelock_owner"), manual(t, "rights")[0])
	p := server.launch(t)
	session := p.useEverything(t)
	for _, query := range manual(t, "query") {
		execute(t, c.superuser("fencelock"), query)
	}
	if n := execute(t, c.superuser("fencelock"), manual(t, "query")[1]); n != 1 {
		t.Errorf("%d grants are shown, want 1", n)
	}
	c.checkObstacles(t)
	c.checkReader(t)
	kill := strings.Replace(manual(t, "kill")[0], "4711", "(SELECT session FROM fencelock.lock_entry WHERE key = 'kept')", 1)
	if n := execute(t, c.superuser("fencelock"), kill); n != 1 {
		t.Errorf("%d sessions were ended, want 1", n)
	}
	_, err := p.sessions().Heartbeat(t.Context(), connect.NewRequest(&fencelockv1.HeartbeatRequest{SessionId: session}))
	if connect.CodeOf(err) != connect.CodeFailedPrecondition {
		t.Errorf("heartbeat of a session that was ended by hand: %v", err)
	}
	p.acquire(t, p.open(t), "kept", "r1")
	for _, key := range []string{"first", "second"} { // once the second is tidied away, a round of tidying is over
		p.leaveBehind(t, c.superuser("fencelock"), key)
	}
	if text := p.get(t, "/metrics"); !strings.Contains(text, `kind="tidy_failed"} 0`) {
		t.Error("the servers' role may not tidy")
	}
	if text := p.errors.String(); strings.Contains(text, "denied") {
		t.Errorf("something was denied: %s", text)
	}
}

// checkObstacles: who is in the way is shown, and nobody who only reads.
func (c cluster) checkObstacles(t *testing.T) {
	t.Helper()
	other, err := pgx.Connect(t.Context(), c.superuser("fencelock"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = other.Close(t.Context()) }()
	for statement, want := range map[string]int64{"SELECT": 0, "SELECT FOR UPDATE": 1} {
		tx, err := other.Begin(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if _, err := tx.Exec(t.Context(), strings.Replace(statement, "SELECT", "SELECT FROM fencelock.lock_entry", 1)); err != nil {
			t.Fatal(err)
		}
		if n := execute(t, c.superuser("fencelock"), manual(t, "query")[0]); n != want {
			t.Errorf("%d are shown to be in the way after %s, want %d", n, statement, want)
		}
		if err := tx.Rollback(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
}

// checkReader: what people who only look are given lets them look, and no more.
func (c cluster) checkReader(t *testing.T) {
	t.Helper()
	text, err := os.ReadFile("../../docs/operations.md")
	if err != nil {
		t.Fatal(err)
	}
	execute(t, c.superuser("postgres"), "CREATE ROLE reader LOGIN PASSWORD 'secret'")
	for _, grant := range regexp.MustCompile("`(GRANT [^`]* TO reader)`").FindAllStringSubmatch(string(text), -1) {
		execute(t, c.as("fencelock_owner"), grant[1])
	}
	if n := execute(t, c.as("reader"), "SELECT owner FROM fencelock.lock_session"); n == 0 {
		t.Error("the reader sees no session")
	}
	conn, err := pgx.Connect(t.Context(), c.as("reader"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close(t.Context()) }()
	if _, err := conn.Exec(t.Context(), "SELECT secret FROM fencelock.lock_session"); err == nil {
		t.Error("the reader sees secrets")
	}
}

// useEverything makes calls of every kind, and returns a session that holds the key "kept".
func (p *process) useEverything(t *testing.T) (session string) {
	t.Helper()
	ctx := t.Context()
	admin := fencelockv1connect.NewAdminServiceClient(http.DefaultClient, p.rpc)
	session = p.open(t)
	p.heartbeat(t, session)
	p.release(t, session, "released", p.acquire(t, session, "released", "r1"))
	p.acquire(t, session, "revoked", "r1")
	if _, err := admin.Revoke(ctx, connect.NewRequest(&fencelockv1.RevokeRequest{Key: "revoked", Operator: "op", Reason: "worker is stuck"})); err != nil {
		t.Fatal(err)
	}
	if _, err := admin.RaiseTokenFloor(ctx, connect.NewRequest(&fencelockv1.RaiseTokenFloorRequest{Above: 1000, Operator: "op", Reason: "restored a dump"})); err != nil {
		t.Fatal(err)
	}
	if _, err := admin.ListRevocations(ctx, connect.NewRequest(&fencelockv1.ListRevocationsRequest{})); err != nil {
		t.Fatal(err)
	}
	if _, err := p.sessions().CloseSession(ctx, connect.NewRequest(&fencelockv1.CloseSessionRequest{SessionId: p.open(t)})); err != nil {
		t.Fatal(err)
	}
	if token := p.acquire(t, session, "kept", "r1"); token <= 1000 {
		t.Errorf("token %d after the floor was raised to 1000", token)
	}
	return session
}

// leaveBehind waits until the server has tidied away the grant of a session that was ended by hand.
func (p *process) leaveBehind(t *testing.T, address, key string) {
	t.Helper()
	p.acquire(t, p.open(t), key, "r1")
	where := " WHERE key = '" + key + "'"
	execute(t, address, "UPDATE fencelock.lock_session SET ended_at = clock_timestamp() WHERE id = (SELECT session FROM fencelock.lock_entry"+where+")")
	ctx, cancel := context.WithTimeout(t.Context(), eventually)
	defer cancel()
	for execute(t, address, "SELECT FROM fencelock.lock_entry"+where+" AND session IS NULL") == 0 {
		if ctx.Err() != nil {
			t.Fatalf("the grant of %s is not tidied away: %s", key, p.errors)
		}
	}
}
