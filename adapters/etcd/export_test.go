package etcd

import (
	"context"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/fencelock/fencelock/core/lock"
)

// OneStream is the planted bug of the keepalives: everything rides one stream, however long it is silent.
func OneStream(cfg Config) Config {
	cfg.tuning.oneStream = true
	return cfg
}

// Translate is the one translation of store errors; wrote says that the call could change something.
func Translate(err error, wrote bool) error { return translate(err, access(wrote)) }

// DecodeGrant reads a grant's value and encodes it again.
func DecodeGrant(key lock.Key, kv *mvccpb.KeyValue) (grant lock.Grant, again string, err error) {
	s, err := decodeGrant(key, kv)
	if err != nil {
		return lock.Grant{}, "", err
	}
	g := s.grant
	return g, grantRecord{
		Session: g.Session.Reveal(), Owner: string(g.Owner), Request: string(g.RequestID),
		AcquiredAt: g.AcquiredAt.UnixNano(), Lease: wholeSeconds(g.Lease), TTL: wholeSeconds(s.sessionTTL),
		Base: s.base, Metadata: g.Metadata,
	}.encode(), nil
}

// CheckVersions runs the version gate alone.
func CheckVersions(ctx context.Context, m clientv3.Maintenance, endpoints []string, allowUnsafe bool) error {
	return newGate(Clients{Maintenance: m, Endpoints: endpoints}, allowUnsafe).check(ctx)
}
