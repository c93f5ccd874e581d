package etcd_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/fencelock/fencelock/adapters/etcd"
	"github.com/fencelock/fencelock/core/lock"
)

// versions answers for servers of these versions; one without a version is down.
type versions struct {
	clientv3.Maintenance

	of map[string]string
}

func (v versions) Status(_ context.Context, endpoint string) (*clientv3.StatusResponse, error) {
	version := v.of[endpoint]
	if version == "" {
		return nil, errors.New("down")
	}
	return (*clientv3.StatusResponse)(&pb.StatusResponse{Version: version}), nil
}

func TestVersionGate(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name     string
		versions []string
		allow    bool
		want     error
	}{
		{"the first safe version", []string{"3.5.14"}, false, nil},
		{"newer minors", []string{"3.6.0", "3.7.3", "4.0.0"}, false, nil},
		{"the last unsafe version", []string{"3.5.13"}, false, lock.ErrUnsafeStore},
		{"an older minor with a high patch", []string{"3.4.99"}, false, lock.ErrUnsafeStore},
		{"one old server among others", []string{"3.7.3", "3.5.9"}, false, lock.ErrUnsafeStore},
		{"a candidate of the first safe version", []string{"3.5.14-rc.0"}, false, lock.ErrUnsafeStore},
		{"no version at all", []string{"unknown"}, false, lock.ErrUnsafeStore},
		{"one server down", []string{"3.7.3", ""}, false, nil},
		{"all servers down", []string{"", ""}, false, lock.ErrContention},
		{"an old one allowed", []string{"3.4.0"}, true, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			v, endpoints := versions{of: map[string]string{}}, []string{}
			for i, version := range c.versions {
				endpoint := string(rune('a' + i))
				v.of[endpoint], endpoints = version, append(endpoints, endpoint)
			}
			err := etcd.CheckVersions(t.Context(), v, endpoints, c.allow)
			if !errors.Is(err, c.want) {
				t.Fatalf("got %v, want %v", err, c.want)
			}
			if errors.Is(err, lock.ErrUnsafeStore) && !strings.Contains(err.Error(), "older than 3.5.14") {
				t.Errorf("the message does not name the reason: %v", err)
			}
		})
	}
}
