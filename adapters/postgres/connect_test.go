package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/fencelock/fencelock/adapters/postgres"
	"github.com/fencelock/fencelock/core/lock"
	"github.com/fencelock/fencelock/tools/testenv"
)

func openPools(t *testing.T, access postgres.Access) postgres.Pools {
	t.Helper()
	pools, err := postgres.OpenPools(t.Context(), access)
	if err != nil {
		t.Fatalf("open pools: %v", err)
	}
	t.Cleanup(pools.Close)
	return pools
}

// setting asks a pool for one of the database's settings.
func setting(t *testing.T, pool *pgxpool.Pool, name string) string {
	t.Helper()
	var value string
	if err := pool.QueryRow(t.Context(), "SELECT current_setting($1)", name).Scan(&value); err != nil {
		t.Fatalf("ask for %s: %v", name, err)
	}
	return value
}

func TestConnectionsHaveTheSettingsThatLocksNeed(t *testing.T) {
	t.Parallel()
	url := testenv.Postgres(t).Database(t)
	pools := openPools(t, postgres.Access{
		URL: url + "&default_transaction_isolation=serializable&pool_max_conns=1&pool_min_conns=7",
	})
	named := openPools(t, postgres.Access{URL: url + "&application_name=mine&pool_max_conns=9&synchronous_commit=remote_write" +
		"&default_query_exec_mode=simple_protocol&statement_cache_capacity=0"})
	for _, pool := range []*pgxpool.Pool{pools.Work(), pools.Beats()} {
		if got := setting(t, pool, "transaction_isolation"); got != "read committed" {
			t.Errorf("isolation is %q", got)
		}
		if got := setting(t, pool, "application_name"); got != "fencelock" {
			t.Errorf("application name is %q", got)
		}
		if got := setting(t, pool, "search_path"); got != "pg_catalog, pg_temp" {
			t.Errorf("functions may be those of %q", got)
		}
	}
	if got := setting(t, named.Work(), "application_name"); got != "mine" {
		t.Errorf("application name is %q, the URL says mine", got)
	}
	if got := setting(t, named.Work(), "synchronous_commit"); got != "remote_write" {
		t.Errorf("synchronous_commit is %q, the URL says remote_write", got)
	}
	if got := named.Work().Config().ConnConfig.DefaultQueryExecMode; got != pgx.QueryExecModeCacheStatement {
		t.Errorf("times are read in mode %s", got)
	}
	for _, c := range []struct {
		what      string
		got, want int32
	}{
		{"connections that the URL says", named.Work().Config().MaxConns, 9},
		{"connections at least", pools.Work().Config().MaxConns, 2},
		{"connections for heartbeats", named.Beats().Config().MaxConns, 2},
		{"connections for heartbeats kept open", pools.Beats().Config().MinConns, 2},
	} {
		if c.got != c.want {
			t.Errorf("%s: %d, want %d", c.what, c.got, c.want)
		}
	}
}

// TestPoolerModeKeepsNoState: nothing that a transaction pooler refuses or would mix up.
func TestPoolerModeKeepsNoState(t *testing.T) {
	t.Parallel()
	url := testenv.Postgres(t).Database(t)
	for pooler, want := range map[bool]int{true: 0, false: 1} {
		pools := openPools(t, postgres.Access{URL: url, Pooler: pooler})
		conn, err := pools.Work().Acquire(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		var n int
		for range 2 {
			if err := conn.QueryRow(t.Context(), "SELECT $1::int", 5).Scan(&n); err != nil || n != 5 {
				t.Fatalf("%d, %v", n, err)
			}
		}
		if err := conn.QueryRow(t.Context(), "SELECT count(*) FROM pg_prepared_statements WHERE statement = 'SELECT $1::int'").Scan(&n); err != nil || n != want {
			t.Errorf("with a pooler %v: %d prepared statements, %v, want %d", pooler, n, err, want)
		}
		params := conn.Conn().Config().RuntimeParams
		delete(params, "application_name")
		if pooler && len(params) > 0 {
			t.Errorf("settings that a pooler may refuse: %v", params)
		}
		conn.Release()
	}
}

func TestListeningNeedsADirectWay(t *testing.T) {
	t.Parallel()
	url := testenv.Postgres(t).Database(t)
	for _, c := range []struct {
		what   string
		access postgres.Access
		want   bool
	}{
		{"direct", postgres.Access{URL: url}, true},
		{"pooler alone", postgres.Access{URL: url, Pooler: true}, false},
		{"pooler and a direct way", postgres.Access{URL: "postgres://nobody@127.0.0.1:1/none", Pooler: true, ListenURL: url + "&pool_max_conns=3"}, true},
	} {
		pools := openPools(t, c.access)
		if pools.CanListen() != c.want {
			t.Errorf("%s: can listen: %v", c.what, pools.CanListen())
		}
		conn, err := pools.Listener(t.Context())
		if (err == nil) != c.want {
			t.Errorf("%s: %v", c.what, err)
		}
		if err != nil {
			continue
		}
		admin := raw(t, url)
		if _, err := conn.Exec(t.Context(), "LISTEN fencelock"); err != nil {
			t.Fatal(err)
		}
		mustExec(t, admin, "SELECT pg_notify('fencelock', 'hello')")
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		if n, err := conn.WaitForNotification(ctx); err != nil || n.Payload != "hello" {
			t.Errorf("%s: heard %v, %v", c.what, n, err)
		}
		cancel()
		_ = conn.Close(t.Context())
	}
}

// TestCancelledCallsKeepTheirConnections: callers give up all the time; connections are slow to make. One that the database
// does not confirm in time is given up, which a busy machine may bring about: so one that is kept will do.
func TestCancelledCallsKeepTheirConnections(t *testing.T) {
	t.Parallel()
	const calls = 5
	url := testenv.Postgres(t).Database(t)
	admin, pools := raw(t, url), openPools(t, postgres.Access{URL: url})
	kept := 0
	for i := range calls {
		conn, err := pools.Work().Acquire(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		pid := conn.Conn().PgConn().PID()
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		sleep := fmt.Sprintf("SELECT pg_sleep(60%d)", i)
		go func() {
			_, err := conn.Exec(ctx, sleep)
			ended <- err
		}()
		eventually(t, "the statement runs", func() bool { return rows(t, admin, activity, "%"+sleep+"%") == 1 })
		cancel()
		if err := <-ended; err == nil {
			t.Error("a cancelled call succeeded")
		}
		var now uint32
		if err := conn.QueryRow(t.Context(), "SELECT pg_backend_pid()").Scan(&now); err == nil && now == pid {
			kept++
		}
		conn.Release()
	}
	if kept == 0 {
		t.Errorf("%d calls were cancelled, and each cost a connection", calls)
	}
}

// TestCancellingHitsNoOtherStatement: the request to cancel must not reach the next user of the connection.
func TestCancellingHitsNoOtherStatement(t *testing.T) {
	t.Parallel()
	work := openPools(t, postgres.Access{URL: testenv.Postgres(t).Database(t)}).Work()
	for i := range 300 {
		conn, err := work.Acquire(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Duration(i)*10*time.Microsecond)
		_, _ = conn.Exec(ctx, "SELECT pg_sleep(0.0015)") // ends in time, or not, or just so
		cancel()
		if !conn.Conn().IsClosed() {
			if _, err := conn.Exec(t.Context(), "SELECT pg_sleep(0.005)"); err != nil {
				t.Fatalf("after call %d: %v", i, err)
			}
		}
		conn.Release()
	}
}

// TestNetworkThatSwallowsEverythingHoldsNobody: neither the caller nor the place in the pool, which has few.
func TestNetworkThatSwallowsEverythingHoldsNobody(t *testing.T) {
	t.Parallel()
	url := testenv.Postgres(t).Database(t)
	proxy := testenv.NewProxy(t, address(t, url))
	beats := openPools(t, postgres.Access{URL: through(t, url, proxy) + "&connect_timeout=1"}).Beats()
	eventually(t, "the pool is full", func() bool { return beats.Stat().IdleConns() == 2 })
	proxy.HoldRequests()
	proxy.HoldAnswers()
	t.Cleanup(proxy.ReleaseAnswers)
	t.Cleanup(proxy.ReleaseRequests)
	conns := beats.AcquireAllIdle(t.Context())
	if len(conns) != 2 {
		t.Fatalf("%d connections, want 2", len(conns))
	}
	start := time.Now()
	for _, conn := range conns {
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
		if _, err := conn.Exec(ctx, "SELECT"); err == nil {
			t.Error("a call into nowhere succeeded")
		}
		cancel()
		conn.Release()
	}
	eventually(t, "the places are free", func() bool { return beats.Stat().TotalConns() == beats.Stat().ConstructingConns() })
	if took := time.Since(start); took > 14*time.Second { // the driver alone takes 15
		t.Errorf("it took %v", took)
	}
}

func TestUnreadableURLsShowNoPassword(t *testing.T) {
	t.Parallel()
	const secret = "hunter2"
	for _, url := range []string{
		"", "nonsense " + secret, "postgres://u:" + secret + "@h:port/db", "postgres://u:hun/ter2@h/db",
		"postgres://u:" + secret + "@h/db?sslmode=nonsense", "postgres://u:" + secret + "@h/db?pool_max_conns=none",
		"postgres://u:" + secret + "@h/db?pool_max_conns=0", "postgres://u@h/db?connect_timeout=" + secret + "&password=" + secret,
		"postgres://u@h:" + secret + "@x/db", "postgres://u:" + secret + "@[h/db", "host=h password=" + secret + " port=none",
		"postgres://u:" + secret + "%zz@h/db", "postgres://u@h/db?sslmode=" + secret + "&sslpassword=" + secret,
	} {
		_, err := postgres.OpenPools(t.Context(), postgres.Access{URL: url})
		if !errors.Is(err, lock.ErrInvalid) || lock.IsRetryable(err) {
			t.Errorf("%q: %v", url, err)
			continue
		}
		for _, part := range []string{secret, "ter2"} {
			if strings.Contains(fmt.Sprintf("%v %+v %q", err, err, err), part) {
				t.Errorf("%q: the error shows the password: %v", url, err)
			}
		}
	}
	_, err := postgres.OpenPools(t.Context(), postgres.Access{URL: "postgres://u:" + secret + "@h/db?sslmode=nonsense"})
	if err == nil || !strings.Contains(err.Error(), "sslmode") {
		t.Errorf("the error does not say what is wrong: %v", err)
	}
	_, err = postgres.OpenPools(t.Context(), postgres.Access{URL: "postgres://u@h/db", ListenURL: "postgres://u@h/db?sslmode=nonsense"})
	if err == nil || !strings.Contains(err.Error(), "listen") {
		t.Errorf("the error does not say which URL is wrong: %v", err)
	}
}

// TestDialSaysWhyItCannotConnect: retryable, without the password, and at once.
func TestDialSaysWhyItCannotConnect(t *testing.T) {
	t.Parallel()
	url := testenv.Postgres(t).Database(t)
	proxy := testenv.NewProxy(t, address(t, url))
	proxy.Cut()
	user, rest, _ := strings.Cut(strings.TrimPrefix(url, "postgres://"), "@")
	name, password, _ := strings.Cut(user, ":")
	host, _, _ := strings.Cut(rest, "/")
	for what, url := range map[string]string{
		"nobody there":      through(t, url, proxy),
		"wrong password":    "postgres://" + name + ":wrong-" + password + "@" + rest,
		"database missing":  "postgres://" + user + "@" + host + "/missing?sslmode=disable",
		"no such host name": "postgres://" + user + "@host.invalid/db?sslmode=disable",
	} {
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		store, err := postgres.Dial(ctx, postgres.Access{URL: url}, config())
		cancel()
		if err == nil {
			_ = store.Close()
			t.Errorf("%s: connected", what)
			continue
		}
		refused(t, what, err)
		if strings.Contains(err.Error(), password) {
			t.Errorf("%s: the error shows the password: %v", what, err)
		}
	}
}

// TestWriteThatNoStandbyConfirmedIsNoSuccess: the database answers a cancelled wait for a synchronous standby with success.
func TestWriteThatNoStandbyConfirmedIsNoSuccess(t *testing.T) {
	t.Parallel()
	server := testenv.StartPostgres(t, "synchronous_standby_names=nobody")
	admin := raw(t, server.URL+"&synchronous_commit=local")
	mustExec(t, admin, "CREATE TABLE target (id int)")
	mustExec(t, admin, "ALTER DATABASE postgres SET client_min_messages = 'error'") // new connections have it
	work := openPools(t, postgres.Access{URL: server.URL}).Work()
	acquire := func() *pgxpool.Conn {
		t.Helper()
		conn, err := work.Acquire(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return conn
	}
	write := func(conn *pgxpool.Conn) {
		t.Helper()
		ended := make(chan error, 1)
		go func() {
			_, err := conn.Exec(t.Context(), "INSERT INTO public.target VALUES (1)")
			ended <- err
		}()
		eventually(t, "the commit waits, and is cancelled", func() bool {
			return rows(t, admin, "SELECT pg_cancel_backend(pid) FROM pg_stat_activity WHERE wait_event = 'SyncRep' AND query LIKE 'INSERT%'") > 0
		})
		if err := <-ended; err != nil {
			t.Fatalf("the database says %v now, so nothing here is needed", err)
		}
	}
	conn := acquire()
	write(conn)
	if err := postgres.Confirm(conn.Conn()); !errors.Is(err, lock.ErrContention) || !lock.IsAmbiguous(err) {
		t.Errorf("got %v, want an unknown outcome", err)
	}
	if err := postgres.Confirm(conn.Conn()); err != nil {
		t.Errorf("the next write is judged by the last one: %v", err)
	}
	write(conn)
	pid := conn.Conn().PgConn().PID()
	conn.Release()
	if conn = acquire(); conn.Conn().PgConn().PID() != pid {
		t.Fatal("the pool has given another connection")
	}
	if err := postgres.Confirm(conn.Conn()); err != nil {
		t.Errorf("the next use of the connection is judged by the last one: %v", err)
	}
	conn.Release()
	if n := rows(t, admin, "SELECT FROM target"); n != 2 {
		t.Errorf("%d rows, so it was undone after all", n)
	}
}
