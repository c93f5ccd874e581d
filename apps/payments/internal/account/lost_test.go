package account_test

import (
	"context"
	"errors"
	"testing"

	"github.com/fencelock/fencelock/apps/payments/internal/account"
	"github.com/fencelock/fencelock/core/lock"
	"github.com/fencelock/fencelock/tools/testenv"
)

// TestACommitWhoseAnswerIsLost: the caller is told that nobody knows, and may send the same again.
func TestACommitWhoseAnswerIsLost(t *testing.T) {
	t.Parallel()
	w := open(t, true)
	w.acked("p", 33)
	network := testenv.NewProxy(t, w.url)
	far := (&world{t: t, url: network.URL()}).another(true)

	// The commit waits for a lock that the test has.
	conn := w.connect()
	if _, err := conn.Exec(t.Context(), `
		SELECT pg_advisory_lock(7);
		CREATE FUNCTION wait() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN PERFORM pg_advisory_xact_lock(7); RETURN NULL; END';
		CREATE CONSTRAINT TRIGGER wait AFTER INSERT ON payment.ledger_entry
			DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION wait()`); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	posted := make(chan error, 1)
	go func() {
		_, err := far.Post(ctx, ref("p"), 33, 900)
		posted <- err
	}()
	w.awaitLock()
	network.HoldAnswers()
	if _, err := conn.Exec(t.Context(), "SELECT pg_advisory_unlock(7)"); err != nil {
		t.Fatal(err)
	}
	for w.get("p").Payout.State != account.Posted {
	}
	cancel()
	if err := <-posted; !errors.Is(err, lock.ErrContention) || !lock.IsAmbiguous(err) {
		t.Errorf("post: %v, want an unknown outcome", err)
	}
	network.ReleaseAnswers()
	w.post("p", 33, 900)
	if g := w.ledger().Groups; len(g) != 1 || g[0].Entries != 2 {
		t.Errorf("groups %+v", g)
	}
}
