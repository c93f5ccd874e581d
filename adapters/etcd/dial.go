package etcd

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
)

// The connection's own limits. A dead connection is noticed by keepalives, and a
// healed one is tried again soon.
const (
	dialTimeout      = 5 * time.Second
	keepaliveTime    = 10 * time.Second // etcd refuses more often than every 5 s
	keepaliveTimeout = 3 * time.Second
	backoffBase      = 50 * time.Millisecond
	backoffMax       = time.Second
)

// Access says how to reach an etcd cluster.
type Access struct {
	// Endpoints are host:port addresses or URLs; at least one.
	Endpoints []string
	// TLS is nil for plain connections.
	TLS *tls.Config
	// Username and Password, if set, sign in; give the role read and write for the prefix only.
	Username, Password string
}

// Dial connects to an etcd cluster and returns a Store that owns the connection: Close ends both.
// Errors are those of [New].
func Dial(ctx context.Context, access Access, cfg Config) (*Store, error) {
	if len(access.Endpoints) == 0 {
		return nil, errors.New("open etcd store: no endpoint")
	}
	client, err := clientv3.New(clientv3.Config{
		// The client's own context outlives the dial; closing it ends it.
		Context:              context.WithoutCancel(ctx),
		Endpoints:            access.Endpoints,
		TLS:                  access.TLS,
		Username:             access.Username,
		Password:             access.Password,
		DialTimeout:          dialTimeout,
		DialKeepAliveTime:    keepaliveTime,
		DialKeepAliveTimeout: keepaliveTimeout,
		PermitWithoutStream:  true,
		Logger:               zap.NewNop(), // what matters is returned or reported
		DialOptions: []grpc.DialOption{grpc.WithConnectParams(grpc.ConnectParams{
			Backoff: backoff.Config{
				BaseDelay: backoffBase, Multiplier: backoff.DefaultConfig.Multiplier,
				Jitter: backoff.DefaultConfig.Jitter, MaxDelay: backoffMax,
			},
			MinConnectTimeout: dialTimeout,
		})},
	})
	if err != nil {
		return nil, fmt.Errorf("open etcd client: %w", translate(err, reads))
	}
	store, err := New(ctx, Clients{
		KV: client, Watcher: client, Lease: clientv3.RetryLeaseClient(client), Maintenance: client,
		Endpoints: access.Endpoints,
	}, cfg)
	if err != nil {
		return nil, errors.Join(err, client.Close())
	}
	store.close = client.Close
	return store, nil
}
