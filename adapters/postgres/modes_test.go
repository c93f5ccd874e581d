package postgres_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/fencelock/fencelock/adapters/postgres"
	"github.com/fencelock/fencelock/core/lock"
	"github.com/fencelock/fencelock/core/port"
	"github.com/fencelock/fencelock/tools/testenv"
)

// TestEveryStatement carries each statement out, prepared and not, and looks at each column that it writes: the driver finds out
// the types of parameters and results in two ways.
func TestEveryStatement(t *testing.T) {
	t.Parallel()
	for name, pooler := range map[string]bool{"prepared": false, "through a pooler": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			access := postgres.Access{URL: testenv.Postgres(t).Database(t), Pooler: pooler}
			p := placeAt(t, access, config())
			for range 7 { // the database plans a prepared statement anew until its fifth time
				p.goThrough(t)
			}
		})
	}
}

// TestEveryStatementWithALaterSchema: a newer version has added columns, whose names are any that this one uses for something else.
func TestEveryStatementWithALaterSchema(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	names := []string{
		// relations
		"a", "asked", "asker", "e", "ended", "entry", "expired_session", "extended", "g", "granted", "h", "j", "judged", "lapsed", "m",
		"r", "raised", "recorded", "released", "renewed", "revoked", "s", "t", "told", "v", "view", "w", "wanted", "x",
		// what they find out
		"ahead", "asker_busy", "asker_dead", "asker_expired", "asker_owner", "behind", "did", "done", "doubted", "doubted_missing",
		"ended_grants", "expired", "extended_left", "free", "grants", "holder", "holder_secret", "known", "late", "lease_left", "live",
		"made", "made_at", "made_left", "number", "over", "place", "remaining", "session_left", "sessions", "skipped", "span",
		"unknown", "unsure", "want",
		// columns of the other tables
		"id", "secret", "owner", "ttl", "created_at", "renewed_at", "expires_at", "ended_at", "metadata", "namespace", "key", "token",
		"floor", "session", "request_id", "granted_at", "lease", "leased_at", "lease_until", "awaited", "idle_since", "operator",
		"reason", "at", "previous_owner", "previous_session", "previous_token", "raises", "singleton",
	}
	for _, table := range []string{"lock_session", "lock_entry", "lock_revocation", "lock_meta"} {
		for _, name := range names {
			p.exec(fmt.Sprintf("ALTER TABLE fencelock.%s ADD COLUMN IF NOT EXISTS %q text", table, name))
		}
	}
	for range 7 {
		p.goThrough(t)
	}
	if _, err := p.ReapExpired(t.Context()); err != nil {
		t.Errorf("reap: %v", err)
	}
	if _, _, err := p.Grants(t.Context(), lock.DefaultNamespace, "", port.Page{Size: 10}); err != nil {
		t.Errorf("grants: %v", err)
	}
	if _, _, err := p.Sessions(t.Context(), port.Page{Size: 10}); err != nil {
		t.Errorf("sessions: %v", err)
	}
	if _, _, err := p.Revocations(t.Context(), lock.DefaultNamespace, port.Page{Size: 10}); err != nil {
		t.Errorf("revocations: %v", err)
	}
	if _, err := p.Counts(t.Context()); err != nil {
		t.Errorf("counts: %v", err)
	}
	if _, err := p.Read(t.Context(), key(t, "every")); err != nil {
		t.Errorf("read: %v", err)
	}
}

func (p *place) goThrough(t *testing.T) {
	t.Helper()
	ctx := t.Context()
	metadata := map[string]string{"job": "7", "quote": `"'\`}
	holder, err := p.OpenSession(ctx, port.OpenRequest{Owner: "holder", TTL: time.Minute, Metadata: metadata})
	if err != nil || holder.CreatedAt.IsZero() {
		t.Fatalf("open: %+v, %v", holder, err)
	}
	v, err := p.Heartbeat(ctx, holder.ID)
	if err != nil || v.TTL != time.Minute || v.Remaining <= 0 || v.Remaining > time.Minute {
		t.Fatalf("heartbeat: %+v, %v", v, err)
	}
	taker := p.open(time.Minute)
	leased := request(key(t, "every"), holder.ID)
	leased.Lease, leased.Metadata = 30*time.Second, metadata
	g := p.grabWith(leased)
	if g.Owner != "holder" || g.LeaseRemaining <= 0 || g.LeaseRemaining > g.Lease || g.AcquiredAt.IsZero() {
		t.Errorf("granted: %+v", g)
	}
	again := p.grabWith(leased)
	p.same(t, "the same request", g, again)
	held, err := p.TryInsert(ctx, request(g.Key, taker.ID))
	h := held.Holder
	if err != nil || held.Granted || h.Owner != "holder" || h.Token != g.Token || !h.Session.Equal(holder.ID) || h.FreeWithin <= 0 {
		t.Errorf("held: %+v, %v", held, err)
	}
	settled, ok, err := p.Settle(ctx, g.Key, holder.ID, g.RequestID)
	if err != nil || !ok {
		t.Errorf("settle: %v, %v", ok, err)
	}
	p.same(t, "settled", g, settled)
	longer, err := p.Extend(ctx, g.Key, holder.ID, g.Token, time.Minute)
	if err != nil || longer.LeaseRemaining <= g.Lease {
		t.Errorf("extended: %+v, %v", longer, err)
	}
	p.same(t, "extended", g, longer)
	next, err := p.Handoff(ctx, port.GrantRef{Key: g.Key, Session: holder.ID, Token: g.Token}, request(g.Key, taker.ID))
	if err != nil || next.Token <= g.Token || next.Lease != 0 || next.Owner != "tester" {
		t.Errorf("handed over: %+v, %v", next, err)
	}
	locks, err := p.LocksOf(ctx, taker.ID)
	if err != nil || len(locks) != 1 {
		t.Fatalf("locks: %+v, %v", locks, err)
	}
	p.same(t, "listed", next, locks[0])
	r, err := p.Revoke(ctx, port.RevokeRequest{Key: g.Key, Operator: "op", Reason: "because", Expected: next.Token})
	if err != nil || r.PreviousOwner != "tester" || !r.PreviousSession.Equal(taker.ID) || r.PreviousToken != next.Token ||
		r.Floor <= next.Token || r.At.IsZero() || len(r.ID) != 16 {
		t.Errorf("revoked: %+v, %v", r, err)
	}
	withdrawn := p.grab("every", holder)
	if withdrawn.Token <= r.Floor {
		t.Errorf("token %d, floor %d", withdrawn.Token, r.Floor)
	}
	if ok, err := p.Abandon(ctx, g.Key, holder.ID, withdrawn.RequestID); err != nil || !ok {
		t.Errorf("abandon: %v, %v", ok, err)
	}
	p.release(p.grab("every", holder))
	p.grab("every", holder)
	p.grab("every/other", holder)
	raised, err := p.RaiseFloor(ctx, port.FloorRequest{Above: r.Floor + 100, Operator: "op", Reason: "because"})
	if err != nil || raised.EndedGrants != 2 || raised.Floor < r.Floor+100 || raised.At.IsZero() {
		t.Errorf("raised: %+v, %v", raised, err)
	}
	if g := p.grab("every", holder); g.Token <= raised.Floor {
		t.Errorf("token %d, floor %d", g.Token, raised.Floor)
	}
	p.expire(taker)
	_, err = p.LocksOf(ctx, taker.ID)
	expect(t, "locks of who has expired", err, lock.ErrSessionDead)
	if n, err := p.CloseSession(ctx, holder.ID); n != 1 || err != nil {
		t.Errorf("closed: %d, %v", n, err)
	}
	_, err = p.TryInsert(ctx, request(g.Key, holder.ID))
	expect(t, "acquire by who is closed", err, lock.ErrSessionDead)
}

// same compares all of two grants but what is left of the lease.
func (p *place) same(t *testing.T, what string, want, got lock.Grant) {
	t.Helper()
	if got.Key != want.Key || !got.Session.Equal(want.Session) || got.Owner != want.Owner || got.Token != want.Token ||
		got.RequestID != want.RequestID || !got.AcquiredAt.Equal(want.AcquiredAt) || got.Lease != want.Lease ||
		len(got.Metadata) != len(want.Metadata) || got.Metadata["quote"] != want.Metadata["quote"] {
		t.Errorf("%s: %+v, want %+v", what, got, want)
	}
	if (got.Lease > 0) != (got.LeaseRemaining > 0) {
		t.Errorf("%s: lease %v, remaining %v", what, got.Lease, got.LeaseRemaining)
	}
}

// TestStatementsCallNobodyElsesFunctions: whoever may create in the schema public of an older database could offer functions that fit
// our calls better than the database's own, and would run with our rights.
func TestStatementsCallNobodyElsesFunctions(t *testing.T) {
	t.Parallel()
	p := placeAt(t, postgres.Access{URL: testenv.Postgres(t).Database(t), Pooler: true}, config())
	for _, offered := range []string{
		"nextval(text) RETURNS bigint", "setval(text, bigint) RETURNS bigint", "unnest(text[]) RETURNS SETOF text",
		"unnest(bigint[]) RETURNS SETOF bigint", "pg_notify(text, json) RETURNS void", "set_config(text, varchar, boolean) RETURNS text",
		"json_build_object(text, text, text, text, text, text) RETURNS json", "json_build_object(text, text, text, bigint) RETURNS json",
		"json_build_object(text, text, text, text, text, text, text, bigint, text, bigint) RETURNS json",
	} {
		p.exec("CREATE FUNCTION public." + offered + " LANGUAGE plpgsql AS $$ BEGIN RAISE 'called by %', current_user; END $$")
	}
	p.goThrough(t)
	if _, err := p.ReapExpired(t.Context()); err != nil {
		t.Errorf("reap: %v", err)
	}
}
