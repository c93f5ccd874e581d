package history_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fencelock/fencelock/contracts/parity/history"
	"github.com/fencelock/fencelock/contracts/parity/reference"
	"github.com/fencelock/fencelock/core/lock"
	"github.com/fencelock/fencelock/core/port"
)

func TestARecorderKeepsLostAnswersOpen(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		world := reference.New()
		defer world.Close()
		client, recorder := world.Client(), history.NewRecorder()
		b := recorder.Wrap(client.Backend())
		session, err := b.Sessions.OpenSession(t.Context(), port.OpenRequest{Owner: "test", TTL: time.Minute})
		if err != nil {
			t.Fatal(err)
		}
		key, _ := lock.NewKey("", "k")
		req := port.GrantRequest{Key: key, Session: session.ID, RequestID: "r"}

		resume := client.Pause()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		answered := make(chan struct{})
		go func() {
			defer close(answered)
			_, _ = b.Locks.TryInsert(ctx, req)
		}()
		synctest.Wait()
		if got := recorder.Operations(); got[1].Status != history.Unknown || got[1].Return != history.Forever {
			t.Errorf("in flight: %v", got[1])
		}
		<-answered
		resume()
		heal := client.Partition()
		_, _ = b.Locks.TryInsert(t.Context(), req)
		heal()
		_, _ = b.Locks.TryInsert(t.Context(), req)
		recorder.Kill(session.ID, func() { world.KillSession(session.ID) })

		want := []history.Status{history.OK, history.Unknown, history.Void, history.OK, history.OK}
		got := recorder.Operations()
		if len(got) != len(want) {
			t.Fatalf("%d operations, want %d", len(got), len(want))
		}
		for i, o := range got {
			if o.Status != want[i] {
				t.Errorf("%v: want %s", o, want[i])
			}
		}
		if got[1].Process == got[2].Process {
			t.Error("the process went on after a lost answer")
		}
		if report, err := history.Check(got, patience); err != nil || report.Unknown != 1 || report.Grants != 1 {
			t.Errorf("report %+v, %v", report, err)
		}
	})
}
