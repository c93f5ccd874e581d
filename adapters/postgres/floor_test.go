package postgres_test

import (
	"context"
	"testing"
	"time"

	"github.com/fencelock/fencelock/adapters/postgres"
	"github.com/fencelock/fencelock/core/lock"
	"github.com/fencelock/fencelock/core/port"
	"github.com/fencelock/fencelock/tools/testenv"
)

// TestAutovacuumDoesNotKeepTheFloorDown: it holds a lock on the table of keys for as long as it takes, unless somebody waits for
// deadlock_timeout.
func TestAutovacuumDoesNotKeepTheFloorDown(t *testing.T) {
	t.Parallel()
	server := testenv.StartPostgres(t, "autovacuum_naptime=1", "deadlock_timeout=1500ms")
	p := placeAt(t, postgres.Access{URL: server.Database(t)}, config())
	p.exec(`ALTER TABLE fencelock.lock_entry SET (autovacuum_vacuum_cost_delay = 100, autovacuum_vacuum_cost_limit = 1,
  autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_scale_factor = 0)`) // it takes minutes
	p.exec("INSERT INTO fencelock.lock_entry (namespace, key, idle_since) SELECT 'default', 'k' || i, now() FROM generate_series(1, 20000) i")
	p.exec("UPDATE fencelock.lock_entry SET idle_since = now()")
	eventually(t, "autovacuum is at it", func() bool {
		return one[bool](p, `
SELECT count(*) > 0 FROM pg_locks l JOIN pg_stat_activity a USING (pid)
 WHERE l.relation = 'fencelock.lock_entry'::regclass AND l.granted AND a.backend_type = 'autovacuum worker'`)
	})
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if _, err := p.RaiseFloor(ctx, port.FloorRequest{Operator: "op", Reason: "a reason"}); err != nil {
		t.Errorf("raise floor: %v", err)
	}
}

// TestFloorBehindAForeignChange: until the change is committed nobody can take or release a key while the floor waits, and sessions live on.
func TestFloorBehindAForeignChange(t *testing.T) {
	t.Parallel()
	url := testenv.StartPostgres(t, "deadlock_timeout=1min").Database(t) // it waits once
	p := &place{Store: dialIdle(t, url), t: t, url: url, raw: raw(t, url), told: make(chan postgres.Incident, 1)}
	session := p.open(lock.MaxTTL)
	g := p.grab("other", session)
	p.grab("changed", session)
	foreign := p.begin("SELECT")
	foreign.exec("UPDATE fencelock.lock_entry SET metadata = NULL WHERE key = 'changed'")
	raised := aside(func() (port.FloorRaised, error) {
		return p.RaiseFloor(unhurried(t), port.FloorRequest{Operator: "op", Reason: "a reason"})
	})
	waits := func(what string) func() bool {
		return func() bool { return rows(t, p.raw, activity+" AND wait_event_type = 'Lock'", what) == 1 }
	}
	eventually(t, "the floor waits", waits("LOCK TABLE%"))
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	if ok, err := p.DeleteIfOwner(ctx, g.Key, g.Session, g.Token); ok || !lock.IsRetryable(err) {
		t.Errorf("release while the floor waits: %v, %v", ok, err)
	}
	if _, err := p.Heartbeat(t.Context(), session.ID); err != nil {
		t.Errorf("heartbeat while the floor waits: %v", err)
	}
	foreign.commit()
	if _, err := answered(t, "the floor is raised", raised); err != nil {
		t.Errorf("raise floor: %v", err)
	}
}
