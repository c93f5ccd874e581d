package postgres_test

import (
	"context"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/fencelock/fencelock/contracts/parity"
	"github.com/fencelock/fencelock/core/lock"
)

// foreign is a transaction that is none of a Store's.
type foreign struct {
	place *place
	tx    pgx.Tx
}

// begin opens a transaction, on a connection of its own, and carries a statement out in it. It ends with the test at the latest.
func (p *place) begin(sql string, args ...any) *foreign {
	p.t.Helper()
	conn, err := pgx.ConnectConfig(p.t.Context(), p.raw.Config().ConnConfig)
	if err != nil {
		p.t.Fatalf("connect: %v", err)
	}
	p.t.Cleanup(func() { _ = conn.Close(context.WithoutCancel(p.t.Context())) })
	tx, err := conn.Begin(p.t.Context())
	if err != nil {
		p.t.Fatalf("begin: %v", err)
	}
	f := &foreign{place: p, tx: tx}
	f.exec(sql, args...)
	return f
}

func (f *foreign) exec(sql string, args ...any) {
	f.place.t.Helper()
	if _, err := f.tx.Exec(f.place.t.Context(), sql, args...); err != nil {
		f.place.t.Fatalf("execute %q: %v", sql, err)
	}
}

func (f *foreign) commit() {
	f.place.t.Helper()
	if err := f.tx.Commit(f.place.t.Context()); err != nil {
		f.place.t.Fatalf("commit: %v", err)
	}
}

const (
	lockEntry   = "SELECT FROM fencelock.lock_entry WHERE namespace = 'default' AND key = $1 FOR UPDATE"
	lockSession = "SELECT FROM fencelock.lock_session WHERE secret = $1::uuid FOR UPDATE"
)

// lockKey locks the row of a key.
func (p *place) lockKey(name string) *foreign { return p.begin(lockEntry, name) }

// lockSession locks the row of a session.
func (p *place) lockSession(s lock.Session) *foreign { return p.begin(lockSession, s.ID.Reveal()) }

// waits waits until so many backends of the place's database wait for a row.
func (p *place) waits(t *testing.T, n int) {
	t.Helper()
	eventually(t, "backends wait for a row", func() bool { return p.waiting() == n })
}

// waitsUnless waits until a backend waits for a row, or the call has been answered; it reports which.
func (p *place) waitsUnless(t *testing.T, answered func() bool) (waits bool) {
	t.Helper()
	eventually(t, "a backend waits for a row", func() bool {
		waits = p.waiting() == 1
		return waits || answered()
	})
	return waits
}

// waiting counts the backends of the place's database that wait for a row.
func (p *place) waiting() int {
	p.t.Helper()
	return one[int](p, "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'")
}

// expire lets the life of a session be over for a minute, in the database's clock.
func (p *place) expire(s lock.Session) {
	p.t.Helper()
	p.exec(`UPDATE fencelock.lock_session
   SET renewed_at = clock_timestamp() - ttl - interval '1 minute', expires_at = clock_timestamp() - interval '1 minute'
 WHERE secret = $1::uuid`, s.ID.Reveal())
}

// lapse lets the lease of a key's grant be over for a minute, in the database's clock.
func (p *place) lapse(name string) {
	p.t.Helper()
	p.exec(`UPDATE fencelock.lock_entry
   SET leased_at = clock_timestamp() - lease - interval '1 minute', lease_until = clock_timestamp() - interval '1 minute'
 WHERE namespace = 'default' AND key = $1`, name)
}

// outcome is what a call that goes on by itself came to.
type outcome[V any] struct {
	value V
	err   error
}

// unhurried is the context of a call that is to wait until the test lets it go, however slow the machine is: one without a deadline
// gives up after 10 s.
func unhurried(t parity.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 4*patience)
	t.Cleanup(cancel)
	return ctx
}

// aside calls a function in a goroutine of its own.
func aside[V any](do func() (V, error)) <-chan outcome[V] {
	c := make(chan outcome[V], 1)
	go func() {
		v, err := do()
		c <- outcome[V]{v, err}
	}()
	return c
}

// answered waits for the answer.
func answered[V any](t *testing.T, what string, c <-chan outcome[V]) (V, error) {
	t.Helper()
	select {
	case a := <-c:
		return a.value, a.err
	case <-time.After(patience):
		t.Fatalf("waited in vain: %s", what)
		panic("unreachable")
	}
}
