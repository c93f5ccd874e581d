package postgres_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/fencelock/fencelock/adapters/postgres"
	"github.com/fencelock/fencelock/core/lock"
	"github.com/fencelock/fencelock/core/port"
)

func readToken(t *testing.T, path string) lock.Token {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	n, err := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return lock.Token(n)
}

// markAt writes a watermark file.
func markAt(t *testing.T, token lock.Token) (path string) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "watermark")
	if err := os.WriteFile(path, []byte(strconv.FormatInt(int64(token), 10)), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// marked is another Store over the place's database, with a watermark file.
func (p *place) marked(path string) *place {
	p.t.Helper()
	cfg := config()
	cfg.WatermarkFile = path
	return placeAt(p.t, postgres.Access{URL: p.url}, cfg)
}

// stopped shows that a Store makes no grants and does everything else.
func stopped(t *testing.T, p *place, held lock.Grant) {
	t.Helper()
	_, err := p.TryInsert(t.Context(), request(key(t, "refused"), held.Session))
	expect(t, "acquire from an unsafe store", err, lock.ErrUnsafeStore)
	ref := port.GrantRef{Key: held.Key, Session: held.Session, Token: held.Token}
	_, err = p.Handoff(t.Context(), ref, request(held.Key, held.Session))
	expect(t, "handoff in an unsafe store", err, lock.ErrUnsafeStore)
	expect(t, "ping of an unsafe store", p.Ping(t.Context()), lock.ErrUnsafeStore)
	if _, err := p.Heartbeat(t.Context(), held.Session); err != nil {
		t.Errorf("heartbeat: %v", err)
	}
	if info, err := p.Read(t.Context(), held.Key); err != nil || !info.Held {
		t.Errorf("read: %+v, %v", info, err)
	}
	if _, err := p.Extend(t.Context(), held.Key, held.Session, held.Token, 0); err != nil {
		t.Errorf("extend: %v", err)
	}
}

func (p *place) raise(above lock.Token) port.FloorRaised {
	p.t.Helper()
	raised, err := p.RaiseFloor(p.t.Context(), port.FloorRequest{Above: above, Operator: "op", Reason: "after a restore"})
	if err != nil || raised.Floor < above {
		p.t.Fatalf("raise floor above %d: %+v, %v", above, raised, err)
	}
	return raised
}

func TestStoreBelowTheWatermarkFileMakesNoGrants(t *testing.T) {
	t.Parallel()
	healthy := newPlace(t)
	session := healthy.open(lock.MaxTTL)
	held := healthy.grab("held", session)
	mark := held.Token + 1_000_000
	path := markAt(t, mark)
	p := healthy.marked(path)
	if i := p.hears(postgres.StoreUnsafe); i.Err == nil {
		t.Error("reported without a cause")
	}
	stopped(t, p, held)
	stopped(t, p, held)

	// A floor raised on another server, and too low, does not help, nor does it that the tokens pass what was seen.
	if low := healthy.raise(10); low.EndedGrants != 1 {
		t.Errorf("%d grants ended", low.EndedGrants)
	}
	held = healthy.grab("held", session)
	stopped(t, p, held)
	p.exec("SELECT setval('fencelock.fencing_token_seq', $1)", int64(mark)+10)
	stopped(t, p, held)

	high := healthy.raise(mark)
	if g := p.grab("held", session); g.Token <= high.Floor {
		t.Errorf("token %d after a floor of %d", g.Token, high.Floor)
	}
	if err := p.Ping(t.Context()); err != nil {
		t.Errorf("ping: %v", err)
	}
	if err := p.Close(); err != nil {
		t.Fatalf("close: %v", err)
	}
	if got := readToken(t, path); got <= high.Floor {
		t.Errorf("the file holds %d after a token above %d", got, high.Floor)
	}
}

// TestStoreThatGoesBackMakesNoGrants: the sequence is set back under a running Store, as by a restore. Whoever sees it first stops.
func TestStoreThatGoesBackMakesNoGrants(t *testing.T) {
	t.Parallel()
	for name, see := range map[string]func(p *place, session lock.Session) error{
		"by the probe": func(p *place, _ lock.Session) error { return p.Ping(p.t.Context()) },
		"by an acquire": func(p *place, session lock.Session) error {
			_, err := p.TryInsert(p.t.Context(), request(key(p.t, "b"), session.ID))
			return err
		},
		"by an acquire of the same key": func(p *place, session lock.Session) error {
			p.exec("UPDATE fencelock.lock_entry SET session = NULL")
			_, err := p.TryInsert(p.t.Context(), request(key(p.t, "held"), session.ID))
			p.exec("UPDATE fencelock.lock_entry SET session = (SELECT max(id) FROM fencelock.lock_session)")
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newPlace(t)
			session := p.open(lock.MaxTTL)
			for range 5 {
				p.release(p.grab("held", session))
			}
			held := p.grab("held", session)
			p.exec("SELECT setval('fencelock.fencing_token_seq', 2)")
			err := see(p, session)
			expect(t, "what sees it", err, lock.ErrUnsafeStore)
			if lock.IsRetryable(err) || lock.IsAmbiguous(err) {
				t.Errorf("that is no reason to try again: %v", err)
			}
			p.hears(postgres.StoreUnsafe)
			stopped(t, p, held)
			// Others that have seen nothing may go on, and pass what this one has seen.
			p.exec("SELECT setval('fencelock.fencing_token_seq', 1000)")
			stopped(t, p, held)
			for len(p.told) > 0 {
				if i := <-p.told; i.Kind == postgres.StoreUnsafe {
					t.Errorf("reported again: %v", i.Err)
				}
			}
			raised := p.raise(5000)
			if g := p.grab("held", session); g.Token <= held.Token || g.Token <= raised.Floor {
				t.Errorf("token %d after %d and a floor of %d", g.Token, held.Token, raised.Floor)
			}
		})
	}
}

// TestEmptyDatabaseIsBelowTheFirstToken: a sequence that was never used looks as if it had given one.
func TestEmptyDatabaseIsBelowTheFirstToken(t *testing.T) {
	t.Parallel()
	healthy := newPlace(t)
	p := healthy.marked(markAt(t, 1))
	p.hears(postgres.StoreUnsafe)
	expect(t, "ping", p.Ping(t.Context()), lock.ErrUnsafeStore)
	raised := p.raise(0)
	if g := p.grab("a", p.open(lock.MaxTTL)); g.Token <= 1 || g.Token <= raised.Floor {
		t.Errorf("token %d after token 1 and a floor of %d", g.Token, raised.Floor)
	}
	path := filepath.Join(t.TempDir(), "watermark")
	other := healthy.marked(path)
	raised = other.raise(1000)
	if err := other.Close(); err != nil {
		t.Fatalf("close: %v", err)
	}
	if got := readToken(t, path); got < raised.Floor {
		t.Errorf("the file holds %d after a floor of %d", got, raised.Floor)
	}

	lived := newPlace(t)
	session := lived.open(lock.MaxTTL)
	if g := lived.grab("a", session); g.Token != 1 {
		t.Fatalf("the first token is %d", g.Token)
	}
	lived.exec("SELECT setval('fencelock.fencing_token_seq', 1, false)")
	_, err := lived.TryInsert(t.Context(), request(key(t, "b"), session.ID))
	expect(t, "acquire", err, lock.ErrUnsafeStore)
}

// TestTokensThatOthersGotAreSeen by the probe: an idle server guards against a restore too.
func TestTokensThatOthersGotAreSeen(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	ping := func(want error) {
		t.Helper()
		if err := p.Ping(t.Context()); !errors.Is(err, want) {
			t.Errorf("ping: %v, want %v", err, want)
		}
	}
	set := func(token int) { p.exec("SELECT setval('fencelock.fencing_token_seq', $1)", token) }
	set(1000)
	ping(nil)
	set(900) // the database crashed before it had answered with the token
	ping(nil)
	ping(nil)
	set(800)
	ping(lock.ErrUnsafeStore)
	p.hears(postgres.StoreUnsafe)
}

// TestNothingIsUnsafeWhileTokensGrow: the question of where the store is may be overtaken by grants.
func TestNothingIsUnsafeWhileTokensGrow(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var work sync.WaitGroup
	for _, name := range []string{"a", "b"} {
		session := p.open(lock.MaxTTL)
		work.Go(func() {
			for ctx.Err() == nil {
				a, err := p.TryInsert(ctx, request(key(t, name), session.ID))
				if err == nil && a.Granted {
					_, err = p.DeleteIfOwner(ctx, a.Grant.Key, session.ID, a.Grant.Token)
				}
				if errors.Is(err, lock.ErrUnsafeStore) {
					t.Errorf("acquire: %v", err)
					return
				}
			}
		})
	}
	for range 300 {
		if err := p.Ping(t.Context()); err != nil {
			t.Errorf("ping: %v", err)
			break
		}
	}
	cancel()
	work.Wait()
}

// TestWatermarkFileIsWrittenAndChecked: what the file may hold is tested where it is kept, in core/watermark.
func TestWatermarkFileIsWrittenAndChecked(t *testing.T) {
	t.Parallel()
	healthy, dir := newPlace(t), t.TempDir()
	path := filepath.Join(dir, "watermark")
	p := healthy.marked(path)
	g := p.grab("a", p.open(lock.MaxTTL))
	eventually(t, "the file holds the newest token", func() bool { return readToken(t, path) >= g.Token })
	bad := filepath.Join(dir, "bad")
	if err := os.WriteFile(bad, []byte("abc"), 0o600); err != nil {
		t.Fatal(err)
	}
	cfg := config()
	for what, path := range map[string]string{
		"file that holds no token": bad, "file in a folder that is missing": filepath.Join(dir, "missing", "watermark"),
	} {
		cfg.WatermarkFile = path
		if store, err := postgres.Dial(t.Context(), postgres.Access{URL: p.url}, cfg); err == nil {
			_ = store.Close()
			t.Errorf("a watermark %s was accepted", what)
		}
	}
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	p.grab("b", p.open(lock.MaxTTL))
	if i := p.hears(postgres.WatermarkFailed); i.Err == nil {
		t.Error("reported without a cause")
	}
}
