package postgres_test

import (
	"context"
	"fmt"
	"net/url"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/fencelock/fencelock/adapters/postgres"
	"github.com/fencelock/fencelock/core/lock"
	"github.com/fencelock/fencelock/core/port"
	"github.com/fencelock/fencelock/tools/testenv"
)

// listeners are the backends that listen in the place's database, but for the one at hand.
const listeners = `SELECT pid FROM pg_stat_activity WHERE query = 'LISTEN fencelock' AND datname = current_database() AND pid <> pg_backend_pid()`

// apart is a place whose Store listens through a proxy, and does all else directly.
func apart(t *testing.T) (*place, *testenv.Proxy) {
	t.Helper()
	url := testenv.Postgres(t).Database(t)
	proxy := testenv.NewProxy(t, address(t, url))
	return placeAt(t, postgres.Access{URL: url, ListenURL: through(t, url, proxy)}, config()), proxy
}

// waiterOf sets a waiter up whose Store listens, and from whom no wake is pending.
func (p *place) waiterOf(t *testing.T, name string) (port.Wake, lock.Grant) {
	t.Helper()
	g := p.grab(name, p.open(lock.MaxTTL))
	w := wait(t, p.Store, g.Key, p.open(lock.MaxTTL))
	p.caughtUp(t, p.Store)
	drained(w)
	return w, g
}

// TestReleaseWhileNobodyListensWakes: the listener is killed and cannot come back before the release. Its next life looks for
// itself.
func TestReleaseWhileNobodyListensWakes(t *testing.T) {
	t.Parallel()
	p, proxy := apart(t)
	other := p.another()
	w, g := p.waiterOf(t, "killed")
	proxy.Cut() // first, or it listens again at once
	p.exec("SELECT pg_terminate_backend(pid) FROM (" + listeners + ") AS q")
	if ok, err := other.DeleteIfOwner(t.Context(), g.Key, g.Session, g.Token); !ok || err != nil {
		t.Fatalf("release: %v, %v", ok, err)
	}
	proxy.Heal()
	fires(t, "a release while nobody listened", w)
	if i := p.hears(postgres.ListenerRestarted); i.Err == nil {
		t.Error("the incident does not say why")
	}
}

// TestNaiveListenerMissesTheRelease is what the listener does not do: connect again, and go on.
func TestNaiveListenerMissesTheRelease(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	listen := func() *pgx.Conn {
		t.Helper()
		conn, err := pgx.Connect(t.Context(), p.url)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = conn.Close(context.WithoutCancel(t.Context())) })
		if _, err := conn.Exec(t.Context(), "LISTEN fencelock"); err != nil {
			t.Fatal(err)
		}
		return conn
	}
	naive := listen()
	w, g := p.waiterOf(t, "missed")
	p.exec("SELECT pg_terminate_backend($1)", naive.PgConn().PID())
	for {
		if _, err := naive.WaitForNotification(t.Context()); err != nil {
			break
		}
	}
	p.release(g)
	fires(t, "a release", w)
	naive = listen()
	p.exec("SELECT pg_notify('fencelock', 'the next one')")
	if n, err := naive.WaitForNotification(t.Context()); err != nil || n.Payload != "the next one" {
		t.Errorf("it hears %+v, %v: the release was not missed, and the test above shows nothing", n, err)
	}
}

// TestSilentConnectionIsReplaced: its other end has vanished, and nothing says so. Until there is another one the Store looks.
func TestSilentConnectionIsReplaced(t *testing.T) {
	t.Parallel()
	p, proxy := apart(t)
	other := p.another()
	w, g := p.waiterOf(t, "silent")
	proxy.HoldAnswers()
	proxy.HoldRequests()
	if ok, err := other.DeleteIfOwner(t.Context(), g.Key, g.Session, g.Token); !ok || err != nil {
		t.Fatalf("release: %v, %v", ok, err)
	}
	p.hears(postgres.NotListening) // it has noticed, and found no other way
	fires(t, "a release that nobody could hear of", w)
	proxy.Cut() // what is held back is lost
	proxy.ReleaseAnswers()
	proxy.ReleaseRequests()
	proxy.Heal()
	p.hears(postgres.ListenerRestarted)
	p.isDirect(t)
}

// isDirect proves that the Store hears what others do, and does not have to look: it tells of the end of a session.
func (p *place) isDirect(t *testing.T) {
	t.Helper()
	p.caughtUp(t, p.Store)
	sub := subscribe(t, p.Store)
	session := p.open(lock.MaxTTL)
	p.kill(session.ID)
	brings(t, "a death", sub, port.FeedEvent{Kind: port.SessionOver, Session: session.ID})
}

// isWoken proves that the Store's waiters learn of what others do.
func (p *place) isWoken(t *testing.T, other *postgres.Store) {
	t.Helper()
	g := p.grab("k", p.open(lock.MaxTTL))
	w := wait(t, p.Store, g.Key, p.open(lock.MaxTTL))
	drained(w)
	if ok, err := other.DeleteIfOwner(t.Context(), g.Key, g.Session, g.Token); !ok || err != nil {
		t.Fatalf("release: %v, %v", ok, err)
	}
	fires(t, "a release by another Store", w)
}

// TestListenURLThatHearsNothingOfOurs is noticed though it accepts LISTEN, and though others are heard there.
func TestListenURLThatHearsNothingOfOurs(t *testing.T) {
	t.Parallel()
	for name, listenURL := range map[string]func(url string) string{
		"another database": func(string) string {
			elsewhere := newPlace(t)
			go func() {
				for t.Context().Err() == nil {
					_, _ = elsewhere.raw.Exec(t.Context(), "SELECT pg_notify('fencelock', 'others are here'), pg_sleep(0.1)")
				}
			}()
			return elsewhere.url
		},
		"a pooler": func(url string) string {
			return testenv.PgBouncer(t, url,
				"ignore_startup_parameters=default_transaction_isolation,search_path,client_min_messages,extra_float_digits")
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			url := testenv.Postgres(t).Database(t)
			p := placeAt(t, postgres.Access{URL: url, ListenURL: listenURL(url)}, config())
			if i := p.hears(postgres.NotListening); i.Err == nil || !strings.Contains(i.Err.Error(), "not a direct connection") {
				t.Errorf("the incident says %v", i.Err)
			}
			p.isWoken(t, p.another())
		})
	}
}

// TestListenerOfTheOldPrimary: the Store works with another server than before, and the one that it listens to is still there.
func TestListenerOfTheOldPrimary(t *testing.T) {
	t.Parallel()
	before, after := testenv.StartPostgres(t), testenv.StartPostgres(t)
	old, err := url.Parse(before.URL)
	if err != nil {
		t.Fatal(err)
	}
	password, _ := old.User.Password()
	mustExec(t, raw(t, after.URL), "ALTER ROLE "+old.User.Username()+" PASSWORD '"+password+"'")
	proxy := testenv.NewProxy(t, old.Host)
	at := func(hosts string) string { return strings.Replace(before.URL, old.Host, hosts, 1) }
	successor := dial(t, postgres.Access{URL: at(address(t, after.URL))}, config())
	work := at(proxy.Addr + "," + address(t, after.URL))
	p := placeAt(t, postgres.Access{URL: work, ListenURL: before.URL}, config())
	p.raw = raw(t, before.URL)
	p.isDirect(t)
	proxy.Cut()
	p.hears(postgres.NotListening)
	p.isWoken(t, successor)
}

// TestFullPoolDeafensNobody: whether the connection hears cannot be found out, and it does.
func TestFullPoolDeafensNobody(t *testing.T) {
	t.Parallel()
	url := testenv.Postgres(t).Database(t)
	proxy := testenv.NewProxy(t, address(t, url))
	p := placeAt(t, postgres.Access{URL: through(t, url, proxy), ListenURL: url}, config())
	p.raw = raw(t, url)
	w, g := p.waiterOf(t, "k")
	listener := one[int](p, "SELECT pid FROM ("+listeners+") AS q")
	proxy.HoldRequests()
	for range 3 {
		eventually(t, "the listener was asked whether it is there", func() bool {
			return one[int](p, fmt.Sprintf("SELECT count(*) FROM pg_stat_activity WHERE query = '-- ping' AND pid = %d", listener)) == 1
		})
		p.exec("UPDATE fencelock.lock_entry SET session = NULL WHERE key = $1", g.Key.Name())
	}
	fires(t, "what it hears all the same", w)
	for len(p.told) > 0 {
		if i := <-p.told; i.Kind == postgres.NotListening {
			t.Errorf("told of %v", i)
		}
	}
	proxy.ReleaseRequests()
}

// TestWithoutADirectConnection: nobody listens, and what a Store itself ends wakes its waiters at once all the same.
func TestWithoutADirectConnection(t *testing.T) {
	t.Parallel()
	p := idlePlace(t)
	for name, end := range map[string]func(lock.Grant) (bool, error){
		"a release": func(g lock.Grant) (bool, error) { return p.DeleteIfOwner(t.Context(), g.Key, g.Session, g.Token) },
		"an abandoned request": func(g lock.Grant) (bool, error) {
			return p.Abandon(t.Context(), g.Key, g.Session, g.RequestID)
		},
		"a revocation": func(g lock.Grant) (bool, error) {
			_, err := p.Revoke(t.Context(), port.RevokeRequest{Key: g.Key, Operator: "op", Reason: "a reason"})
			return true, err
		},
		"a raised floor": func(lock.Grant) (bool, error) {
			_, err := p.RaiseFloor(t.Context(), port.FloorRequest{Operator: "op", Reason: "a reason"})
			return true, err
		},
	} {
		g := p.grab("local", p.open(lock.MaxTTL))
		w := wait(t, p.Store, g.Key, p.open(lock.MaxTTL))
		quiet(t, "nothing", w)
		if ok, err := end(g); !ok || err != nil {
			t.Fatalf("%s: %v, %v", name, ok, err)
		}
		if !drained(w) {
			t.Errorf("not woken by %s of its own Store", name)
		}
	}
}

// TestForeignNotificationsAreNothing: anybody may notify, so what is said must be harmless, and what is nonsense ignored.
func TestForeignNotificationsAreNothing(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	session := p.open(lock.MaxTTL)
	g := p.grab("mine", session)
	sub := p.Subscribe()
	defer sub.Close()
	w := wait(t, p.Store, g.Key, p.open(lock.MaxTTL))
	p.caughtUp(t, p.Store)
	drained(w)
	for len(sub.Events()) > 0 {
		<-sub.Events()
	}
	number := one[int64](p, "SELECT id FROM fencelock.lock_session WHERE secret = $1::uuid", session.ID.Reveal())
	for _, payload := range []string{
		"", "x", "{", "null", "[]", "7", `"freed"`, "{}", strings.Repeat("[", 7000),
		`{"kind":"freed"}`, `{"kind":"freed","namespace":"default","key":""}`, `{"kind":"freed","namespace":"DEFAULT","key":"mine"}`,
		`{"kind":"freed","namespace":"default","key":7}`, `{"kind":"freed","namespace":"default","key":"mi//ne"}`,
		`{"kind":"unheard of","namespace":"default","key":"mine"}`, `{"kind":7}`,
		`{"kind":"session_over"}`, `{"kind":"session_over","session":0}`, `{"kind":"session_over","session":-1}`,
		`{"kind":"session_over","session":"1"}`, `{"kind":"session_over","session":99999999999999999999}`,
		`{"kind":"lapsed","namespace":"default","key":"other"}`, `{"kind":"revoked"}`, `{"kind":"revoked","revocation":1.5}`,
	} {
		p.exec("SELECT pg_notify('fencelock', $1)", payload)
	}
	p.caughtUp(t, p.Store)
	quiet(t, "a payload that says nothing", w)
	// These look real and are not. The first wakes, as a hint may; nothing is told of any.
	p.exec("SELECT pg_notify('fencelock', $1)", fmt.Sprintf(`{"kind":"session_over","session":%d}`, number))
	p.exec("SELECT pg_notify('fencelock', $1)", fmt.Sprintf(
		`{"kind":"lapsed","namespace":"default","key":"mine","session":%d,"token":%d}`, number, g.Token))
	dead := p.open(lock.MaxTTL)
	p.kill(dead.ID)
	for ev := range sub.Events() {
		if ev.Kind == port.SessionOver && ev.Session.Equal(dead.ID) {
			break
		}
		t.Errorf("told of %+v", ev)
	}
	if _, err := p.Heartbeat(t.Context(), session.ID); err != nil {
		t.Errorf("heartbeat: %v", err)
	}
}

// TestListenerEndsWithItsStore: also where it is at a loss.
func TestListenerEndsWithItsStore(t *testing.T) {
	t.Parallel()
	for name, spoil := range map[string]func(*testenv.Proxy){
		"listening":    func(*testenv.Proxy) {},
		"cut off":      (*testenv.Proxy).Cut,
		"left hanging": (*testenv.Proxy).HoldAnswers,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p, proxy := apart(t)
			p.caughtUp(t, p.Store)
			spoil(proxy)
			closed := aside(func() (bool, error) { return true, p.Close() })
			if _, err := answered(t, "the Store ends", closed); err != nil {
				t.Errorf("close: %v", err)
			}
			proxy.ReleaseAnswers()
			proxy.Heal()
			eventually(t, "nobody listens", func() bool { return rows(t, p.raw, listeners) == 0 })
		})
	}
}
