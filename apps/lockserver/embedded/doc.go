// Package embedded runs an etcd inside the server's process: one durable store, no other
// program to install, nothing that listens.
//
// It is a cluster of one member that has no peers and no client listeners; the server talks to it by function
// calls. Every write is synced to disk before it is answered. The history that etcd keeps for
// watchers is compacted every minute. The database may grow to 8 GiB; past that, grants fail
// as retryable errors and releases still work, until the file is made smaller with etcdutl defrag (see
// Quota).
//
// A directory belongs to one process at a time. The claim is a lock on a file, which the kernel
// drops however the process ends.
package embedded
