package following

import (
	"context"
	"iter"
	"time"

	"github.com/fencelock/fencelock/core/fence"
	"github.com/fencelock/fencelock/core/lock"
	"github.com/fencelock/fencelock/core/port"
)

// patience bounds every wait for a report.
const patience = 30 * time.Second

// T is the part of testing.TB that this package uses.
type T interface {
	Helper()
	Context() context.Context
	Cleanup(f func())
	Fatalf(format string, args ...any)
}

// Report is one report of a follower.
type Report struct {
	Resource string
	Err      error
}

// Reports are those of one follower.
type Reports <-chan Report

// Start runs a follower until the test ends. Its resources are called as the keys of the locks are.
func Start(t T, revocations func(context.Context) iter.Seq2[lock.Revocation, error], marks fence.HighWater) Reports {
	t.Helper()
	reports := make(chan Report)
	ctx, stop := context.WithCancel(t.Context())
	f := fence.Follower{
		Revocations: revocations,
		Resources:   func(key lock.Key) []string { return []string{key.Name()} },
		Marks:       marks,
		Every:       10 * time.Millisecond,
		Report: func(resource string, _ lock.Token, err error) {
			select {
			case reports <- Report{resource, err}:
			case <-ctx.Done():
			}
		},
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		f.Run(ctx)
	}()
	t.Cleanup(func() { stop(); <-ended })
	return reports
}

// Await passes over reports until one is as wanted.
func (r Reports) Await(t T, wanted func(Report) bool) {
	t.Helper()
	limit := time.After(patience)
	for {
		select {
		case report := <-r:
			if wanted(report) {
				return
			}
		case <-limit:
			t.Fatalf("the follower did not say so")
		}
	}
}

// AwaitRaised passes over reports until the mark of the resource is raised.
func (r Reports) AwaitRaised(t T, resource string) {
	t.Helper()
	r.Await(t, func(report Report) bool { return report.Resource == resource && report.Err == nil })
}

// Of lists the newest revocations of the default namespace of a store, as a follower reads them.
func Of(b port.Backend) func(context.Context) iter.Seq2[lock.Revocation, error] {
	return func(ctx context.Context) iter.Seq2[lock.Revocation, error] {
		return func(yield func(lock.Revocation, error) bool) {
			all, _, err := b.Catalog.Revocations(ctx, lock.DefaultNamespace, port.Page{Size: port.MaxPageSize})
			for _, r := range all {
				if !yield(r, nil) {
					return
				}
			}
			if err != nil {
				yield(lock.Revocation{}, err)
			}
		}
	}
}
