// Package testenv gives tests a real etcd, a real PostgreSQL with a pooler, and a network that can be
// broken. It is the only place that knows Docker.
//
// A server is found in this order:
//
//  1. the addresses in FENCELOCK_TEST_ETCD (separated by commas), or the URL in
//     FENCELOCK_TEST_POSTGRES, of a role that may create databases;
//  2. a container, if a Docker daemon answers and an image is there or can be pulled: first the
//     one that `make images` builds, then the official ones;
//  3. a local process: an etcd built from its Go module by the go command, a PostgreSQL whose
//     programs are on PATH or where packages put them, the newest first.
//
// FENCELOCK_TEST_ENV=address, docker or local allows one of them only. Where none works the
// test fails and says what to install; nothing is ever skipped. FENCELOCK_TEST_ETCD_VERSION
// (such as 3.5.21) and FENCELOCK_TEST_POSTGRES_VERSION (a major one, such as 14) choose other
// versions than [EtcdVersion] and [PostgresVersion] for 2 and 3.
//
// [Etcd] and [Postgres] are one server each for the whole test process: tests keep apart by key
// prefixes of their own, and by databases of their own. [StartEtcd] and [StartPostgres] are
// private ones for a test that stops, kills or freezes them. All write to disk with fsync on.
// [PgBouncer] stands between clients and a PostgreSQL, [NewProxy] between a client and any server.
//
// A local server ends with the test process, and so does a container, however that went: an etcd of
// ours sees to it itself, a small watcher process to the others. [Main] ends them in good order,
// which a test binary that counts its goroutines needs.
//
// PostgreSQL and pgbouncer refuse to run as root. A test that does runs them as the user postgres,
// or nobody where there is none.
package testenv
