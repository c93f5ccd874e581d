package drills

import (
	"crypto/rand"
	"slices"
	"strings"

	"github.com/fencelock/fencelock/tools/testenv"
)

// Store is where lock servers keep their locks. Servers that are given the same one share them.
type Store struct{ env, args []string }

// Embedded is an etcd inside of the server, with its data in a directory; one server at a time has it.
func Embedded(t T) Store {
	t.Helper()
	return Store{args: []string{"--etcd.data-dir=" + t.TempDir()}}
}

// Etcd is a part of its own of the etcd that the tests of this process share.
func Etcd(t T) Store {
	t.Helper()
	return Store{args: []string{
		"--lock.backend=etcd", "--etcd.endpoints=" + strings.Join(testenv.Etcd(t).Endpoints, ","),
		"--etcd.prefix=" + rand.Text() + "/", "--etcd.data-dir=" + t.TempDir(),
	}}
}

// Postgres is a database of its own in the PostgreSQL that the tests of this process share.
func Postgres(t T) Store {
	t.Helper()
	return Store{
		// Arguments can be seen by everybody on the machine.
		env:  []string{"FENCELOCK_POSTGRES_URL=" + testenv.Postgres(t).Database(t)},
		args: []string{"--lock.backend=postgres", "--postgres.state-dir=" + t.TempDir()},
	}
}

// Server is one running lock server.
type Server struct {
	*Process

	// Addr is the host:port of its RPC, and Admin that of its metrics and probes.
	Addr, Admin string

	binary    string
	env, args []string
}

// URL is what clients dial.
func (s *Server) URL() string { return "http://" + s.Addr }

// StartServer runs a lock server over the store and returns when it says that it is ready.
func (p *Programs) StartServer(t T, store Store, args ...string) *Server {
	t.Helper()
	s := &Server{Addr: testenv.FreeAddress(t), Admin: testenv.FreeAddress(t), binary: p.Path(t, "lockserver"), env: store.env}
	s.args = slices.Concat([]string{"--server.addr=" + s.Addr, "--admin.addr=" + s.Admin}, store.args, args)
	s.run(t)
	return s
}

// Restart runs a server that has ended again, over the same store and at the same addresses.
func (s *Server) Restart(t T) {
	t.Helper()
	<-s.Exited()
	s.run(t)
}

func (s *Server) run(t T) {
	t.Helper()
	s.Process = Start(t, s.env, s.binary, s.args...)
	s.AwaitOutput(t, "lockserver ready: rpc http://"+s.Addr)
}
