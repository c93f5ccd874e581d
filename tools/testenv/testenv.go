package testenv

import (
	"context"
	"os"
)

// T is the part of testing.TB that this package uses.
type T interface {
	Helper()
	Context() context.Context
	Cleanup(func())
	Logf(format string, args ...any)
	Fatalf(format string, args ...any)
	TempDir() string
}

// The versions that tests get unless told otherwise.
const (
	EtcdVersion = "3.7.3"
	// PostgresVersion is a major version. Where servers are local processes, the newest that is
	// installed is taken instead.
	PostgresVersion = "17"
)

// The environment variables that choose the servers.
const (
	envWay             = "FENCELOCK_TEST_ENV"
	envEtcd            = "FENCELOCK_TEST_ETCD"
	envEtcdVersion     = "FENCELOCK_TEST_ETCD_VERSION"
	envPostgres        = "FENCELOCK_TEST_POSTGRES"
	envPostgresVersion = "FENCELOCK_TEST_POSTGRES_VERSION"
)

// The ways to a server, as FENCELOCK_TEST_ENV names them.
const (
	wayAddress = "address"
	wayDocker  = "docker"
	wayLocal   = "local"
)

// settings are what the environment says of one kind of server, read once per use so that tests can
// set it.
type settings struct {
	way       string
	addresses []string
	// version is empty if the environment does not choose one.
	version string
}

func readSettings(version string) settings {
	return settings{way: os.Getenv(envWay), version: os.Getenv(version)}
}

// allows reports whether the environment lets this way be tried.
func (s settings) allows(way string) bool { return s.way == "" || s.way == way }

// Runner is what [Main] wraps: *testing.M is one.
type Runner interface {
	Run() int
}

// Main wraps a test binary so that the servers its tests shared are stopped before it ends:
//
//	func TestMain(m *testing.M) { os.Exit(testenv.Main(m).Run()) }
//	func TestMain(m *testing.M) { goleak.VerifyTestMain(testenv.Main(m)) }
func Main(m Runner) Runner { return stopping{m} }

type stopping struct{ Runner }

func (s stopping) Run() int {
	defer sharedPostgres.stop()
	defer sharedEtcd.stop()
	return s.Runner.Run()
}
