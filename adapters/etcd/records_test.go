package etcd_test

import (
	"errors"
	"maps"
	"testing"

	"go.etcd.io/etcd/api/v3/mvccpb"

	"github.com/fencelock/fencelock/adapters/etcd"
	"github.com/fencelock/fencelock/core/lock"
)

// FuzzGrantRecord: whatever stands in the store, reading it never panics, never yields a
// grant without a session, and what was read is written back the same.
func FuzzGrantRecord(f *testing.F) {
	id := lock.NewSessionID().Reveal()
	f.Add([]byte(`s{"s":"`+id+`","o":"me","r":"r1","t":1,"d":15,"m":{"a":"b"}}`), int64(7))
	f.Add([]byte(`c{"s":"`+id+`","o":"me","r":"r1","t":1,"d":15,"l":30,"b":5}`), int64(1))
	f.Add([]byte(`c{"s":"`+id+`","l":0}`), int64(1))
	f.Add([]byte(`s{"s":"short"}`), int64(1))
	f.Add([]byte(`x{}`), int64(1))
	f.Add([]byte(`s`), int64(1))
	f.Add([]byte(nil), int64(0))
	k, err := lock.NewKey("", "k")
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, value []byte, rev int64) {
		g, again, err := etcd.DecodeGrant(k, &mvccpb.KeyValue{Value: value, ModRevision: rev})
		if err != nil {
			if !errors.Is(err, lock.ErrContention) {
				t.Fatalf("error %v is not retryable", err)
			}
			return
		}
		if g.Session.IsZero() || g.Key != k {
			t.Fatalf("read %+v", g)
		}
		same, _, err := etcd.DecodeGrant(k, &mvccpb.KeyValue{Value: []byte(again), ModRevision: rev})
		if err != nil || !equal(g, same) {
			t.Fatalf("read %+v, wrote %s, read %+v, %v", g, again, same, err)
		}
	})
}

func equal(a, b lock.Grant) bool {
	return a.Key == b.Key && a.Session.Equal(b.Session) && a.Owner == b.Owner && a.Token == b.Token &&
		a.RequestID == b.RequestID && a.AcquiredAt.Equal(b.AcquiredAt) && a.Lease == b.Lease &&
		maps.Equal(a.Metadata, b.Metadata)
}
