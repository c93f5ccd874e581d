package postgres_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/fencelock/fencelock/adapters/postgres"
	"github.com/fencelock/fencelock/core/lock"
	"github.com/fencelock/fencelock/core/port"
)

// fires waits for a wake.
func fires(t *testing.T, what string, w port.Wake) {
	t.Helper()
	select {
	case <-w.Fired():
	case <-time.After(patience):
		t.Fatalf("not woken within %v by %s", patience, what)
	}
}

// drained takes a pending wake, if there is one, and reports whether there was.
func drained(w port.Wake) bool {
	select {
	case <-w.Fired():
		return true
	default:
		return false
	}
}

func quiet(t *testing.T, what string, w port.Wake) {
	t.Helper()
	if drained(w) {
		t.Errorf("woken by %s", what)
	}
}

// wait does what a waiter does at a Store: it registers, and then tries in vain.
func wait(t *testing.T, store *postgres.Store, k lock.Key, session lock.Session) port.Wake {
	t.Helper()
	w := store.Register(k, 0)
	t.Cleanup(w.Cancel)
	if a, err := store.TryInsert(t.Context(), request(k, session.ID)); err != nil || a.Granted {
		t.Fatalf("try %s: %+v, %v, want held", k, a, err)
	}
	return w
}

// caughtUp returns once the Store's listener is in place, so that all have been told to look for themselves, and has heard all
// notifications of before. It sends one that wakes a waiter of its own.
func (p *place) caughtUp(t *testing.T, store *postgres.Store) {
	t.Helper()
	sub := store.Subscribe()
	if ev := next(t, sub); ev.Kind != port.Resync {
		t.Fatalf("the first event is %+v, want a resync", ev)
	}
	sub.Close()
	k := key(t, "probe/"+lock.NewSessionID().Reveal())
	w := store.Register(k, 0)
	defer w.Cancel()
	send := func() {
		p.exec(`SELECT pg_notify('fencelock', json_build_object('kind', 'freed', 'namespace', 'default', 'key', $1::text)::text)`, k.Name())
	}
	send()
	fires(t, "the listener that is in place, or a notification", w)
	send() // the first may have been the wake for a listener just in place
	fires(t, "a notification", w)
}

// settled is caughtUp and returns once the Store has also told of what it heard: it looks notices up in order, and tells what it
// does not know at the end of each batch.
func (p *place) settled(t *testing.T, store *postgres.Store) {
	t.Helper()
	p.caughtUp(t, store)
	sub := store.Subscribe()
	defer sub.Close()
	for range 2 { // the second is of another batch, so all of the first has been told
		dead := p.open(lock.MaxTTL)
		p.kill(dead.ID)
		for ev := next(t, sub); ev.Kind != port.SessionOver || !ev.Session.Equal(dead.ID); {
			ev = next(t, sub)
		}
	}
}

// TestMissedReleaseNeedsTheSecondTry: the release happens after the failed try and before the
// registration, and nothing will wake that. Only the try after the registration sees it.
func TestMissedReleaseNeedsTheSecondTry(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	other := p.another()
	holder, waiter := p.open(lock.MaxTTL), p.open(lock.MaxTTL)
	g := p.grab("race", holder)
	req := request(g.Key, waiter.ID)
	if a, err := other.TryInsert(t.Context(), req); err != nil || a.Granted {
		t.Fatalf("first try: %+v, %v, want held", a, err)
	}
	p.release(g)
	p.caughtUp(t, other)
	late := other.Register(g.Key, g.Token)
	defer late.Cancel()
	p.caughtUp(t, other)
	quiet(t, "a release before the registration: the test shows nothing", late)
	if a, err := other.TryInsert(t.Context(), req); err != nil || !a.Granted {
		t.Fatalf("second try: %+v, %v, want granted", a, err)
	}
}

// TestEveryEndWakesAtEveryStore: what ends a grant wakes, whoever did it; what does not end one does not.
func TestEveryEndWakesAtEveryStore(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	stores := []*postgres.Store{p.Store, p.another()}
	heir := p.open(lock.MaxTTL)
	for _, way := range []struct {
		name string
		end  func(lock.Grant)
	}{
		{"released", p.release},
		{"withdrawn", func(g lock.Grant) {
			if ok, err := p.Abandon(t.Context(), g.Key, g.Session, g.RequestID); !ok || err != nil {
				t.Fatalf("abandon: %v, %v", ok, err)
			}
		}},
		{"revoked", func(g lock.Grant) {
			if _, err := p.Revoke(t.Context(), port.RevokeRequest{Key: g.Key, Operator: "op", Reason: "a reason"}); err != nil {
				t.Fatalf("revoke: %v", err)
			}
		}},
		{"of a session that was closed", func(g lock.Grant) {
			if n, err := p.CloseSession(t.Context(), g.Session); n != 1 || err != nil {
				t.Fatalf("close: %d, %v", n, err)
			}
		}},
		{"of a session that was ended by hand", func(g lock.Grant) { p.kill(g.Session) }},
		{"of a session that was deleted by hand", func(g lock.Grant) {
			p.exec("DELETE FROM fencelock.lock_session WHERE secret = $1::uuid", g.Session.Reveal())
		}},
		{"of a session that has expired", func(g lock.Grant) { p.expire(lock.Session{ID: g.Session}) }},
		{"lapsed", func(g lock.Grant) { p.lapse(g.Key.Name()) }},
		{"ended by a raised floor", func(lock.Grant) {
			if _, err := p.RaiseFloor(t.Context(), port.FloorRequest{Operator: "op", Reason: "a reason"}); err != nil {
				t.Fatalf("raise floor: %v", err)
			}
		}},
		{"cleared by hand", func(g lock.Grant) {
			p.exec("UPDATE fencelock.lock_entry SET session = NULL WHERE key = $1", g.Key.Name())
		}},
	} {
		holder := p.open(lock.MaxTTL)
		req := request(key(t, "end/"+lock.NewSessionID().Reveal()), holder.ID)
		req.Lease = lock.MaxTTL
		g := p.grabWith(req)
		bystander := p.grab("beside/"+g.Key.Name(), heir)
		var wakes, bystanders []port.Wake
		for _, store := range stores {
			wakes = append(wakes, wait(t, store, g.Key, heir))
			bystanders = append(bystanders, wait(t, store, bystander.Key, holder))
		}
		for i, store := range stores {
			p.caughtUp(t, store)
			drained(wakes[i])
			drained(bystanders[i])
		}
		if _, err := p.Extend(t.Context(), g.Key, g.Session, g.Token, lock.MaxTTL); err != nil {
			t.Fatalf("extend: %v", err)
		}
		if _, err := p.Heartbeat(t.Context(), g.Session); err != nil {
			t.Fatalf("heartbeat: %v", err)
		}
		for i, store := range stores {
			p.caughtUp(t, store)
			quiet(t, "an extension, a heartbeat or a write elsewhere", wakes[i])
		}
		way.end(g)
		for i := range stores {
			fires(t, "the end of a grant that was "+way.name, wakes[i])
			if p.caughtUp(t, stores[i]); way.name != "ended by a raised floor" {
				quiet(t, "the end of another grant, which was "+way.name, bystanders[i])
			}
		}
	}
}

// listening is a second Store over the place's database that listens, and does nothing else on its own: no tidying comes to the
// help of its waiters.
func (p *place) listening(t *testing.T) *postgres.Store {
	t.Helper()
	store := dialIdle(t, p.url)
	postgres.Listen(store)
	return store
}

// TestDeathWakesBeforeAnybodyTidies whoever held the key.
func TestDeathWakesBeforeAnybodyTidies(t *testing.T) {
	t.Parallel()
	p := idlePlace(t)
	other := p.listening(t)
	for range 3 {
		holder, waiter := p.open(lock.MaxTTL), p.open(lock.MaxTTL)
		g := p.grab("orphan", holder)
		w := wait(t, other, g.Key, waiter)
		p.caughtUp(t, other)
		drained(w)
		if n, err := p.CloseSession(t.Context(), holder.ID); n != 1 || err != nil {
			t.Fatalf("close: %d, %v", n, err)
		}
		fires(t, "the end of the holder's session", w)
	}
}

// TestDeathAfterAHandoverWakes: the waiter has seen one session hold the key; then another store hands the grant on, which wakes
// nobody, and the session that has it now ends.
func TestDeathAfterAHandoverWakes(t *testing.T) {
	t.Parallel()
	p := idlePlace(t)
	other := p.listening(t)
	first, next, waiter := p.open(lock.MaxTTL), p.open(lock.MaxTTL), p.open(lock.MaxTTL)
	g := p.grab("handed", first)
	w := wait(t, other, g.Key, waiter)
	p.caughtUp(t, other)
	drained(w)
	if _, err := p.Handoff(t.Context(), port.GrantRef{Key: g.Key, Session: g.Session, Token: g.Token}, request(g.Key, next.ID)); err != nil {
		t.Fatalf("handoff: %v", err)
	}
	p.caughtUp(t, other)
	quiet(t, "a handoff", w)
	p.kill(first.ID)
	p.caughtUp(t, other)
	drained(w) // it was the holder as far as the waiter knows
	p.kill(next.ID)
	fires(t, "the death of the session that the grant was handed to", w)
}

// TestDeathDuringATryWakes: the session dies after the try has seen it alive, and the news of that is there before the answer.
func TestDeathDuringATryWakes(t *testing.T) {
	t.Parallel()
	p := idlePlace(t)
	other := p.listening(t)
	holder, waiter := p.open(lock.MaxTTL), p.open(lock.MaxTTL)
	g := p.grab("slow", holder)
	w := other.Register(g.Key, 0)
	defer w.Cancel()
	p.caughtUp(t, other)
	drained(w)
	resume := p.holdUp("fencelock.lock_entry", "NEW.awaited AND NOT OLD.awaited")
	try := aside(func() (port.Attempt, error) { return other.TryInsert(unhurried(t), request(g.Key, waiter.ID)) })
	p.heldUp(t)
	p.kill(holder.ID)
	p.caughtUp(t, other)
	resume()
	if a, err := answered(t, "the answer to the try", try); err != nil || a.Granted {
		t.Fatalf("try: %+v, %v, want held", a, err)
	}
	fires(t, "the death of the session that the try has seen", w)
}

// TestFalseDeathWakesOnce: anybody may say that the holder's session has ended. A waiter looks once for each time that it is said.
func TestFalseDeathWakesOnce(t *testing.T) {
	t.Parallel()
	p := idlePlace(t)
	other := p.listening(t)
	holder, waiter := p.open(lock.MaxTTL), p.open(lock.MaxTTL)
	g := p.grab("alive", holder)
	w := wait(t, other, g.Key, waiter)
	p.caughtUp(t, other)
	drained(w)
	for range 2 {
		p.exec(`SELECT pg_notify('fencelock', json_build_object('kind', 'session_over', 'session', id)::text)
  FROM fencelock.lock_session WHERE secret = $1::uuid`, holder.ID.Reveal())
		fires(t, "the news of a death", w)
		for range 3 {
			w = wait(t, other, g.Key, waiter)
			quiet(t, "news that was found to be false", w)
		}
	}
	p.kill(holder.ID)
	fires(t, "the death after all", w)
}

// holdUp holds up the commit of what changes a row of the table so that the condition is true, until resume is called.
func (p *place) holdUp(table, condition string) (resume func()) {
	p.t.Helper()
	f := p.begin("SELECT pg_advisory_xact_lock(4711)")
	p.exec(`CREATE FUNCTION public.hold_up() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    WHILE NOT pg_try_advisory_xact_lock(4711) LOOP
        PERFORM pg_sleep(0.01);
    END LOOP;
    RETURN NULL;
END $$`)
	p.exec("CREATE CONSTRAINT TRIGGER hold_up AFTER UPDATE ON " + table + ` DEFERRABLE INITIALLY DEFERRED
  FOR EACH ROW WHEN (` + condition + ") EXECUTE FUNCTION public.hold_up()")
	return f.commit
}

// heldUp waits until something is held up.
func (p *place) heldUp(t *testing.T) {
	t.Helper()
	eventually(t, "a commit is held up", func() bool {
		return one[int](p, "SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'PgSleep' AND datname = current_database()") == 1
	})
}

// TestNotifiedOnlyWhereSomebodyWaits: notifications stand in line at the commit, so there must be few.
func TestNotifiedOnlyWhereSomebodyWaits(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	heard := p.overhear(t)
	holder, waiter := p.open(lock.MaxTTL), p.open(lock.MaxTTL)
	req := request(key(t, "a"), holder.ID)
	req.Lease = time.Minute
	for range 3 {
		g := p.grabWith(req)
		if _, err := p.Extend(t.Context(), g.Key, g.Session, g.Token, 2*time.Minute); err != nil {
			t.Fatal(err)
		}
		if _, err := p.TryInsert(t.Context(), request(g.Key, waiter.ID)); err != nil { // it does not wait
			t.Fatal(err)
		}
		if _, err := p.Heartbeat(t.Context(), holder.ID); err != nil {
			t.Fatal(err)
		}
		p.release(g)
		req.RequestID += "x"
	}
	if got := heard(); len(got) > 0 {
		t.Errorf("nobody waits, and notified was %q", got)
	}
	for range 3 {
		g := p.grabWith(req)
		w := wait(t, p.Store, g.Key, waiter)
		p.release(g)
		w.Cancel()
		p.release(p.grab("a", waiter)) // nobody waits any more
		req.RequestID += "x"
		if got := heard(); len(got) != 1 {
			t.Errorf("a release that somebody waited for was notified as %q, want once", got)
		}
	}
}

// overhear listens as a server does. The function that it returns gives what was notified since the last time, but for what
// servers say to themselves.
func (p *place) overhear(t *testing.T) (heard func() []string) {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), p.url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close(context.WithoutCancel(t.Context())) })
	if _, err := conn.Exec(t.Context(), "LISTEN fencelock"); err != nil {
		t.Fatal(err)
	}
	return func() []string {
		t.Helper()
		const end = "that is all"
		p.exec("SELECT pg_notify('fencelock', $1)", end)
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		var payloads []string
		for {
			n, err := conn.WaitForNotification(ctx)
			if err != nil {
				t.Fatalf("wait for a notification: %v", err)
			}
			if n.Payload == end {
				return payloads
			}
			if !strings.Contains(n.Payload, `"kind":"proof"`) {
				payloads = append(payloads, n.Payload)
			}
		}
	}
}
