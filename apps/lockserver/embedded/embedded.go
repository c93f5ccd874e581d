package embedded

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"sync"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/server/v3/embed"
	"go.etcd.io/etcd/server/v3/etcdserver/api/v3client"
	"go.etcd.io/etcd/server/v3/etcdserver/api/v3rpc"
	"go.etcd.io/etcd/server/v3/proxy/grpcproxy/adapter"
	"go.uber.org/zap"
)

// Quota is the largest size of the database in bytes.
const Quota = 8 << 30

// retention is how long the history for watchers is kept, and how often it is compacted. The server's watches resume
// within seconds or re-read; a busy server writes 10,000 revisions in each of them.
const retention = "1m"

// Name is what stands for the embedded member where an endpoint is asked for.
const Name = "embedded"

// Etcd is a running embedded etcd.
type Etcd struct {
	server  *embed.Etcd
	client  *clientv3.Client
	lease   pb.LeaseClient
	release func()
	stop    sync.Once
}

// Start opens or creates the store under dir and returns once it can grant. ctx bounds the start. A
// directory that another process uses is ErrInUse.
func Start(ctx context.Context, dir string, logger *slog.Logger) (*Etcd, error) {
	release, err := claim(dir)
	if err != nil {
		return nil, err
	}
	// At start etcd warns of what is meant to be: no listener, no name, no users.
	level := zap.NewAtomicLevelAt(zap.ErrorLevel)
	server, err := embed.StartEtcd(settings(filepath.Join(dir, "etcd"), zapTo(logger, level)))
	if err != nil {
		release()
		return nil, fmt.Errorf("start embedded etcd: %w", err)
	}
	e := &Etcd{server: server, release: release}
	select {
	case <-server.Server.ReadyNotify():
	case err = <-server.Err():
	case <-server.Server.StopNotify():
		err = errors.New("it has stopped")
	case <-ctx.Done():
		err = ctx.Err()
	}
	if err != nil {
		e.Close()
		return nil, fmt.Errorf("start embedded etcd: %w", err)
	}
	level.SetLevel(zap.WarnLevel)
	e.client = v3client.New(server.Server)
	e.lease = adapter.LeaseServerToLeaseClient(v3rpc.NewQuotaLeaseServer(server.Server))
	return e, nil
}

func settings(dir string, logger *zap.Logger) *embed.Config {
	cfg := embed.NewConfig()
	cfg.Dir = dir
	// No listener of any kind: who can reach etcd can take any lock.
	cfg.ListenPeerUrls, cfg.ListenClientUrls = nil, nil
	cfg.AutoCompactionMode = embed.CompactorModePeriodic
	cfg.AutoCompactionRetention = retention
	cfg.QuotaBackendBytes = Quota
	cfg.ZapLoggerBuilder = embed.NewZapLoggerBuilder(logger)
	return cfg
}

// Client is the in-process client.
func (e *Etcd) Client() *clientv3.Client { return e.client }

// Lease is the raw client for leases.
func (e *Etcd) Lease() pb.LeaseClient { return e.lease }

// Failed has a value if etcd stops on its own.
func (e *Etcd) Failed() <-chan error { return e.server.Err() }

// Close stops etcd and gives the directory back. It may be called more than once.
func (e *Etcd) Close() {
	e.stop.Do(func() {
		if e.client != nil {
			_ = e.client.Close()
		}
		e.server.Close()
		e.release()
	})
}
