// Package etcd keeps Fencelock's sessions, grants and revocations in etcd.
package etcd
