package service_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/fencelock/fencelock/core/lock"
	"github.com/fencelock/fencelock/core/port"
	"github.com/fencelock/fencelock/core/service"
)

func TestOneWatcherBringsNewsOfManySessions(t *testing.T) {
	bubble(t, service.Config{}, func(w *world) {
		news := w.service.Watch()
		defer news.Close()
		g, other := w.hold(), w.session()
		for range 2 { // the second time changes nothing
			news.Add(g.Session)
			news.Add(other)
			synctest.Wait()
		}
		first, second := next(w, news.Events()), next(w, news.Events())
		if first.Kind != service.HeldNow || second.Kind != service.HeldNow || first.Session == second.Session {
			w.Errorf("first news: %+v, %+v; want what each holds", first, second)
		}
		if n := len(news.Events()); n != 0 {
			w.Errorf("%d more events", n)
		}
		if _, err := w.service.Revoke(w.Context(), port.RevokeRequest{Key: theKey, Operator: "op", Reason: "testing it"}); err != nil {
			w.Fatal(err)
		}
		if ev := next(w, news.Events()); ev.Kind != service.GrantLost || ev.Session != g.Session || ev.Token != g.Token {
			w.Errorf("revoked: %+v", ev)
		}
		w.kill(g.Session)
		if ev := next(w, news.Events()); ev.Kind != service.SessionDead || ev.Session != g.Session {
			w.Errorf("killed: %+v", ev)
		}
		w.kill(other) // the watcher goes on
		if ev := next(w, news.Events()); ev.Kind != service.SessionDead || ev.Session != other {
			w.Errorf("killed: %+v", ev)
		}
		news.Add(other) // it is over, and said to be so again
		if ev := next(w, news.Events()); ev.Kind != service.SessionDead || ev.Session != other {
			w.Errorf("watched when over: %+v", ev)
		}
	})
}

// Many more sessions end at once than a watcher that is behind has room for: each end arrives, once.
func TestAWatcherThatIsBehindLearnsOfEveryEnd(t *testing.T) {
	bubble(t, service.Config{}, func(w *world) {
		news := w.service.Watch()
		defer news.Close()
		const n = 5 * service.NewsBuffer
		over := map[lock.SessionID]int{}
		for range n {
			id := w.session()
			over[id] = 0
			news.Add(id)
		}
		w.pass(time.Minute) // nobody reads
		for id := range over {
			w.kill(id)
		}
		w.pass(time.Minute)
		if err := w.service.Drain(w.Context()); err != nil {
			w.Fatal(err)
		}
		drainings := 0
		for len(news.Events()) > 0 {
			for len(news.Events()) > 0 {
				switch ev := <-news.Events(); ev.Kind {
				case service.SessionDead:
					over[ev.Session]++
				case service.Draining:
					drainings++
				case service.HeldNow: // from before
				case service.GrantLost:
					w.Errorf("%+v", ev)
				}
			}
			w.pass(10 * time.Second)
		}
		for id, times := range over {
			if times != 1 {
				w.Errorf("the end of %v was told %d times", id, times)
			}
		}
		if drainings != 1 {
			w.Errorf("draining was told %d times", drainings)
		}
	})
}

// A watcher that is behind is told the store's view instead of what it missed.
func TestAWatcherThatIsBehindCatchesUp(t *testing.T) {
	bubble(t, service.Config{}, func(w *world) {
		g := w.hold()
		news, quick := w.service.Watch(), w.service.Watch()
		defer news.Close()
		defer quick.Close()
		news.Add(g.Session)
		w.store.mu.Lock()
		for range 10 * service.NewsBuffer {
			w.store.tell(port.FeedEvent{Kind: port.GrantRevoked, Key: theKey, Session: g.Session, Token: 1})
		}
		w.store.mu.Unlock()
		synctest.Wait()
		quick.Add(g.Session)
		if ev := next(w, quick.Events()); ev.Kind != service.HeldNow {
			w.Errorf("the quick watcher got %+v", ev)
		}
		for range len(news.Events()) {
			<-news.Events()
		}
		w.pass(5 * time.Second)
		if ev := next(w, news.Events()); ev.Kind != service.HeldNow || len(ev.Held) != 1 {
			w.Errorf("the slow watcher got %+v; want what it holds", ev)
		}
	})
}

func TestAWatcherEndsOnceAndLeavesNothing(t *testing.T) {
	bubble(t, service.Config{}, func(w *world) {
		news := w.service.Watch()
		id := w.session()
		news.Add(id)
		news.Close()
		news.Close()
		news.Add(w.session())
		for ev := range news.Events() {
			if ev.Session != id {
				w.Errorf("%+v", ev)
			}
		}
		w.clean()
		last := w.service.Watch()
		last.Add(id)
		w.service.Close()
		for ev := range last.Events() { // ends
			if ev.Session != id {
				w.Errorf("%+v", ev)
			}
		}
		w.service.Watch().Add(id)
		if _, open := <-w.service.Watch().Events(); open {
			w.Error("a watcher of a closed service")
		}
	})
}
