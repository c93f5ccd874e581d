package etcd

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/coreos/go-semver/semver"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/fencelock/fencelock/core/lock"
)

// statusTimeout bounds the question to one server.
const statusTimeout = 3 * time.Second

// gate refuses servers that are not safe to grant from.
type gate struct {
	status      func(ctx context.Context, endpoint string) (*clientv3.StatusResponse, error)
	endpoints   []string
	allowUnsafe bool

	mu sync.Mutex
	// open are the servers whose version is not known yet.
	open []string
}

func newGate(c Clients, allowUnsafe bool) *gate {
	return &gate{
		status: c.Maintenance.Status, endpoints: c.Endpoints, allowUnsafe: allowUnsafe, open: c.Endpoints,
	}
}

// check asks every server whose version is not known yet. One that cannot be
// asked stays open, unless that is true of all.
func (g *gate) check(ctx context.Context) error {
	if g.allowUnsafe {
		return nil
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	var open []string
	var failed error
	for _, endpoint := range g.open {
		resp, err := g.ask(ctx, endpoint)
		if err != nil {
			open, failed = append(open, endpoint), err
			continue
		}
		if err := safeVersion(endpoint, resp.Version); err != nil {
			return err
		}
	}
	g.open = open
	if len(open) == len(g.endpoints) {
		return translate(failed, reads)
	}
	return nil
}

func (g *gate) ask(ctx context.Context, endpoint string) (*clientv3.StatusResponse, error) {
	ctx, cancel := context.WithTimeout(ctx, statusTimeout)
	defer cancel()
	return g.status(ctx, endpoint)
}

// ready checks late servers, and that the store has room for grants.
func (g *gate) ready(ctx context.Context) error {
	g.mu.Lock()
	late := len(g.open) > 0
	g.mu.Unlock()
	if late {
		if err := g.check(ctx); err != nil {
			return err
		}
	}
	for _, endpoint := range g.endpoints {
		resp, err := g.ask(ctx, endpoint)
		if err != nil {
			continue
		}
		if len(resp.Errors) > 0 {
			return lock.Contention("the store has raised an alarm", false, errors.New(resp.Errors[0]))
		}
		return nil
	}
	return nil
}

// firstSafe is the first version without two faults: revisions could go
// backwards after a crash, and a leader that had stalled could revoke the leases of others.
func firstSafe() semver.Version { return semver.Version{Major: 3, Minor: 5, Patch: 14} }

func safeVersion(endpoint, version string) error {
	v, err := semver.NewVersion(version)
	if err == nil && !v.LessThan(firstSafe()) {
		return nil
	}
	return &lock.Error{
		Code: lock.CodeUnsafeStore,
		Message: fmt.Sprintf("etcd %s at %s is older than %s: its revisions can go back after a crash and its leader "+
			"can revoke healthy leases, so it cannot be granted from", version, endpoint, firstSafe()),
		Cause: err,
	}
}
