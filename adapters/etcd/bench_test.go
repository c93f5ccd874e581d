package etcd_test

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/fencelock/fencelock/core/lock"
	"github.com/fencelock/fencelock/core/port"
	"github.com/fencelock/fencelock/tools/testenv"
)

// BenchmarkWake measures from a release on one Store to the wake on another, while 200 other
// writes a second go on.
func BenchmarkWake(b *testing.B) {
	server, prefix := testenv.Etcd(b), freshPrefix()
	first, second := dial(b, server.Endpoints, config(prefix)), dial(b, server.Endpoints, config(prefix))
	ctx, cancel := context.WithCancel(b.Context())
	defer cancel()
	go write(ctx, raw(b, server.Endpoints), prefix, 5*time.Millisecond, make(chan struct{}))
	session, err := first.OpenSession(ctx, port.OpenRequest{Owner: "worker", TTL: lock.MaxTTL})
	if err != nil {
		b.Fatal(err)
	}
	k, err := lock.NewKey("", "wake")
	if err != nil {
		b.Fatal(err)
	}
	w := second.Register(k, 0)
	defer w.Cancel()
	<-w.Fired()
	var took []time.Duration
	for b.Loop() {
		a, err := first.TryInsert(ctx, request(k, session.ID))
		if err != nil || !a.Granted {
			b.Fatalf("acquire: %+v, %v", a, err)
		}
		start := time.Now()
		if ok, err := first.DeleteIfOwner(ctx, k, session.ID, a.Grant.Token); !ok || err != nil {
			b.Fatalf("release: %v, %v", ok, err)
		}
		<-w.Fired()
		took = append(took, time.Since(start))
	}
	slices.Sort(took)
	b.ReportMetric(float64(took[len(took)/2].Microseconds()), "p50-us")
	b.ReportMetric(float64(took[len(took)*99/100].Microseconds()), "p99-us")
}
