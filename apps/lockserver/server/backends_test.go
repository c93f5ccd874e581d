package server_test

import (
	"crypto/rand"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/fencelock/fencelock/apps/lockserver/config"
	"github.com/fencelock/fencelock/tools/testenv"
)

// backend is a kind of store.
type backend struct {
	name string
	// own are the arguments of a server with a store of its own behind the proxy, which is in front of a server that tests share.
	own func(t *testing.T) (args []string, network *testenv.Proxy)
}

func backends() []backend {
	return []backend{{config.Etcd, ownEtcd}, {config.Postgres, ownPostgres}}
}

func ownEtcd(t *testing.T) ([]string, *testenv.Proxy) {
	t.Helper()
	network := testenv.NewProxy(t, testenv.Etcd(t).Endpoints[0])
	return []string{
		"--etcd.endpoints=" + network.URL(), "--etcd.prefix=" + rand.Text() + "/", "--etcd.data-dir=" + t.TempDir(),
	}, network
}

func ownPostgres(t *testing.T) ([]string, *testenv.Proxy) {
	t.Helper()
	address, network := ownDatabase(t)
	return []string{"--lock.backend=postgres", "--postgres.url=" + address, "--postgres.state-dir=" + t.TempDir()}, network
}

// ownDatabase returns the URL of an empty database through a proxy.
func ownDatabase(t *testing.T) (string, *testenv.Proxy) {
	t.Helper()
	network := testenv.NewProxy(t, testenv.Postgres(t).Database(t))
	return network.URL(), network
}

// TestBothBackendsShowTheSameSeries compares all that scrapes show, but for the backend's name.
func TestBothBackendsShowTheSameSeries(t *testing.T) {
	t.Parallel()
	var shown [][]string
	for _, b := range backends() {
		args, _ := b.own(t)
		r := start(t, args...)
		r.acquire(t, r.open(t, eventually), "demo", "r1")
		shown = append(shown, r.everything(t, b.name))
	}
	if !slices.Equal(shown[0], shown[1]) {
		t.Errorf("one backend shows\n%s\nand the other\n%s", strings.Join(shown[0], "\n"), strings.Join(shown[1], "\n"))
	}
	if len(shown[0]) < len(everySeries("")) {
		t.Errorf("too little to compare: %q", shown[0])
	}
}

// everything lists the type, name and labels of each series of the registry, where "*" stands for the backend's name.
func (r *running) everything(t *testing.T, backend string) []string {
	t.Helper()
	families, err := r.registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	var all []string
	for _, family := range families {
		for _, m := range family.GetMetric() {
			name := family.GetType().String() + " " + family.GetName()
			for _, l := range m.GetLabel() {
				value := l.GetValue()
				if l.GetName() == "backend" && value == backend {
					value = "*"
				}
				name += " " + l.GetName() + "=" + value
			}
			all = append(all, name)
		}
	}
	return all
}

func TestIncidentsAreCountedAndLogged(t *testing.T) {
	t.Parallel()
	for _, b := range backends() {
		t.Run(b.name, func(t *testing.T) {
			t.Parallel()
			args, _ := b.own(t)
			r := start(t, args...)
			removeNotes(t, args)
			r.acquire(t, r.open(t, eventually), "demo", "r1")
			waitFor(t, "the incident counts", func() bool {
				return r.series(t)["lock_store_incident_total backend="+b.name+" kind=watermark_failed"] > 0
			})
			waitFor(t, "the incident is logged", func() bool {
				return strings.Contains(r.log.String(), `"level":"WARN","msg":"store_watermark_failed","error":"`)
			})
		})
	}
}

// TestAStoreThatWentBackInTimeIsAnError, and its name is said once.
func TestAStoreThatWentBackInTimeIsAnError(t *testing.T) {
	t.Parallel()
	address, _ := ownDatabase(t)
	r := start(t, "--lock.backend=postgres", "--postgres.url="+address, "--postgres.state-dir="+t.TempDir())
	for _, key := range []string{"a", "b", "c"} {
		r.acquire(t, r.open(t, eventually), key, "r1")
	}
	conn, err := pgx.Connect(t.Context(), address)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close(t.Context()) }()
	if _, err := conn.Exec(t.Context(), "SELECT setval('fencelock.fencing_token_seq', 1)"); err != nil {
		t.Fatal(err)
	}
	waitFor(t, "the incident is logged", func() bool { return strings.Contains(r.log.String(), `"level":"ERROR","msg":"store_unsafe","error":"`) })
	if n := r.series(t)["lock_store_incident_total backend=postgres kind=store_unsafe"]; n == 0 {
		t.Error("the incident does not count")
	}
	waitFor(t, "the server is not ready", func() bool {
		status, _ := r.get(t, "/readyz")
		return status == http.StatusServiceUnavailable
	})
}

// removeNotes removes the directory that the arguments name for a running server's notes, until it stops.
func removeNotes(t *testing.T, args []string) {
	t.Helper()
	for _, arg := range args {
		if key, dir, _ := strings.Cut(arg, "="); strings.HasSuffix(key, "-dir") {
			if err := os.RemoveAll(dir); err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = os.MkdirAll(dir, 0o700) })
		}
	}
}

func TestAPoolerWithoutAWayToListenIsAWarning(t *testing.T) {
	t.Parallel()
	address, _ := ownDatabase(t)
	args := []string{"--lock.backend=postgres", "--postgres.url=" + address, "--postgres.pooler", "--postgres.state-dir=" + t.TempDir()}
	const warning = `"level":"WARN","msg":"store_not_listening","error":"waiters poll: postgres.pooler is set, and postgres.listen-url is not"`
	r := start(t, args...)
	if !strings.Contains(r.log.String(), warning) {
		t.Errorf("no warning in %s", r.log)
	}
	if n := r.series(t)["lock_store_incident_total backend=postgres kind=not_listening"]; n != 1 {
		t.Errorf("counted %v times", n)
	}
	r.acquire(t, r.open(t, eventually), "demo", "r1")
	if r := start(t, append(args, "--postgres.listen-url="+address)...); strings.Contains(r.log.String(), "store_not_listening") {
		t.Errorf("a warning where there is nothing to warn of: %s", r.log)
	}
}
