// Package testenv gives tests a real etcd and a network that can be broken. It is the only
// place that knows Docker.
//
// A server is found in this order:
//
//  1. the addresses in FENCELOCK_TEST_ETCD (separated by commas);
//  2. a container, if a Docker daemon answers and an image is there or can be pulled: first the
//     one that `make images` builds, then the official ones;
//  3. a local process, built from etcd's Go module by the go command.
//
// FENCELOCK_TEST_ENV=address, docker or local allows one of them only. Where none works the
// test fails and says what to install; nothing is ever skipped. FENCELOCK_TEST_ETCD_VERSION
// (such as 3.5.21) chooses another version than [EtcdVersion] for 2 and 3.
//
// [Etcd] is one server for the whole test process: tests keep apart by key prefixes of
// their own. [StartEtcd] is a private one for a test that stops, kills or freezes it. Both
// write to disk with fsync on. [NewProxy] stands between a client and a server.
//
// A local server ends by itself when the test process ends, and a container is removed by a
// small watcher process; [Main] ends them in good order, which a test binary that counts its
// goroutines needs.
package testenv
